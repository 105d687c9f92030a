! exchange.f90 - exchange.c in Fortran 2003: rows of an MoE layer to the ranks of their experts and back, in a program of one's own.
!
!   mpifort -o exchange exchange.f90 $(pkg-config --libs tutti) && mpirun -n 3 ./exchange
!
! The module says what the program uses of tutti/comm_mpi.h, exchange.h, plan.h and status.h, by the same names and in the same
! order; whatever else one wants of them is written alike. Opaque objects are type(c_ptr), enums integer(c_int), pointers in
! structs type(c_ptr), and x[T][H] is x(H, T), which is the same memory. Ranks, slots, handles and rows of a group count from 0.
module tutti
    use, intrinsic :: iso_c_binding
    implicit none

    integer(c_int), parameter :: TT_OK = 0
    integer(c_int), parameter :: TT_PROGRESS_AUTO = 0, TT_PROGRESS_THREAD = 1, TT_PROGRESS_POLLED = 2, TT_PROGRESS_CALLER = 3
    integer(c_int), parameter :: TT_WIRE_F32 = 0, TT_WIRE_BF16 = 1, TT_WIRE_INT8 = 2, TT_WIRE_FP8 = 3
    integer, parameter :: TT_STATUS_MESSAGE_BYTES = 1024

    type, bind(c) :: tt_world_params
        integer(c_int) :: progress = TT_PROGRESS_AUTO
        real(c_double) :: deadline_s = 0
        integer(c_int) :: n_cores = 0
        integer(c_int) :: comm_cpu = -1
        type(c_ptr) :: fake_node = c_null_ptr
        integer(c_int64_t) :: delay_ns = 0
    end type

    type, bind(c) :: tt_exchange_params
        integer(c_int64_t) :: H = 0
        integer(c_int64_t) :: K = 0
        integer(c_int64_t) :: max_tokens = 0
        integer(c_int) :: n_handles = 0
        integer(c_int) :: wire = TT_WIRE_F32, wire_back = TT_WIRE_F32
        type(c_ptr) :: source = c_null_ptr ! integer(c_int), target :: source(n_sources)
        integer(c_int) :: n_sources = 0
        type(c_ptr) :: owner = c_null_ptr ! integer(c_int), target :: owner(n_owners)
        integer(c_int) :: n_owners = 0
        integer(c_int) :: width = 0
        type(c_ptr) :: back_columns = c_null_ptr
        integer(c_int) :: route = 0
        integer(c_int) :: combine = 0
        logical(c_bool) :: weights_travel = .false.
        integer(c_int64_t) :: chunk_tokens = 0
        logical(c_bool) :: takes_whole_chunks = .false.
    end type

    type, bind(c) :: tt_owner_map
        integer(c_int64_t) :: n_slots
        type(c_ptr) :: rank  ! integer(c_int32_t), target :: rank(width, n_slots)
        type(c_ptr) :: local ! integer(c_int32_t), target :: local(n_slots)
    end type

    type, bind(c) :: tt_exchange_state
        logical(c_bool) :: all_arrived
        integer(c_int) :: n_arrived
        logical(c_bool) :: has_ready, all_returned
    end type

    type, bind(c) :: tt_exchange_rows
        integer(c_int32_t) :: slot, n, source_id, first
        type(c_ptr) :: base, index
        integer(c_size_t) :: row_bytes
        type(c_ptr) :: weight
        integer(c_int32_t) :: chunk
    end type

    type, bind(c) :: tt_exchange_counters ! unsigned in C
        integer(c_int64_t) :: uses, rows_out, rows_in, node_bytes, wire_bytes_out, wire_bytes_in, payload_bytes_out, messages_out, &
            wait_ns, polls
    end type

    interface
        function tt_status_message() bind(c)
            import
            type(c_ptr) :: tt_status_message
        end function
        integer(c_int) function tt_world_create_fortran(comm, params, world_out) bind(c)
            import
            integer(c_int), value :: comm ! of `use mpi`; with `use mpi_f08` it is comm%MPI_VAL
            type(tt_world_params), intent(in) :: params
            type(c_ptr), intent(inout) :: world_out
        end function
        subroutine tt_world_destroy(world) bind(c)
            import
            type(c_ptr), intent(inout) :: world
        end subroutine
        integer(c_int) function tt_exchange_create(world, params, exchange_out) bind(c)
            import
            type(c_ptr), value :: world
            type(tt_exchange_params), intent(in) :: params
            type(c_ptr), intent(inout) :: exchange_out
        end function
        subroutine tt_exchange_destroy(exchange) bind(c)
            import
            type(c_ptr), intent(inout) :: exchange
        end subroutine
        integer(c_int) function tt_exchange_set_owners(exchange, map, epoch) bind(c)
            import
            type(c_ptr), value :: exchange
            type(tt_owner_map), intent(in) :: map
            integer(c_int64_t), value :: epoch
        end function
        integer(c_int) function tt_exchange_prepare(exchange, handle, T, slot, weight, mine) bind(c)
            import
            type(c_ptr), value :: exchange
            integer(c_int), value :: handle, mine
            integer(c_int64_t), value :: T
            integer(c_int32_t), intent(in) :: slot(*) ! (K, T)
            real(c_float), intent(in) :: weight(*)    ! (K, T)
        end function
        integer(c_int) function tt_exchange_dispatch_begin(exchange, handle, x, ldx, compute) bind(c)
            import
            type(c_ptr), value :: exchange, compute
            integer(c_int), value :: handle
            real(c_float), intent(in) :: x(*) ! (ldx, T)
            integer(c_int64_t), value :: ldx
        end function
        integer(c_int) function tt_exchange_poll(exchange, handle, state_out) bind(c)
            import
            type(c_ptr), value :: exchange
            integer(c_int), value :: handle
            type(tt_exchange_state), intent(inout) :: state_out
        end function
        logical(c_bool) function tt_exchange_next_ready(exchange, handle, rows_out) bind(c)
            import
            type(c_ptr), value :: exchange
            integer(c_int), value :: handle
            type(tt_exchange_rows), intent(inout) :: rows_out
        end function
        subroutine tt_exchange_get_row(exchange, rows, i, dst) bind(c)
            import
            type(c_ptr), value :: exchange
            type(tt_exchange_rows), intent(in) :: rows
            integer(c_int32_t), value :: i
            real(c_float), intent(inout) :: dst(*) ! (H)
        end subroutine
        subroutine tt_exchange_put_result(exchange, handle, rows, i, y) bind(c)
            import
            type(c_ptr), value :: exchange
            integer(c_int), value :: handle
            type(tt_exchange_rows), intent(in) :: rows
            integer(c_int32_t), value :: i
            real(c_float), intent(in) :: y(*) ! (columns of my part)
        end subroutine
        integer(c_int) function tt_exchange_push(exchange, handle, rows) bind(c)
            import
            type(c_ptr), value :: exchange
            integer(c_int), value :: handle
            type(tt_exchange_rows), intent(in) :: rows
        end function
        integer(c_int) function tt_exchange_combine_end(exchange, handle, y, ldy, compute) bind(c)
            import
            type(c_ptr), value :: exchange, compute
            integer(c_int), value :: handle
            real(c_float), intent(inout) :: y(*) ! (ldy, T)
            integer(c_int64_t), value :: ldy
        end function
        type(tt_exchange_counters) function tt_exchange_get_counters(exchange) bind(c)
            import
            type(c_ptr), value :: exchange
        end function
    end interface
end module

program exchange_example
    use, intrinsic :: iso_fortran_env, only: error_unit
    use mpi
    use tutti
    implicit none

    integer, parameter :: HIDDEN = 1000, TOP_K = 2, MAX_TOKENS = 16, EXPERTS_PER_RANK = 4
    integer(c_int), parameter :: handle = 0
    type(c_ptr) :: world = c_null_ptr, exchange = c_null_ptr
    type(tt_world_params) :: params
    type(tt_exchange_counters) :: n
    integer(c_int32_t) :: choice(TOP_K, MAX_TOKENS)
    real(c_float) :: weight(TOP_K, MAX_TOKENS), x(HIDDEN, MAX_TOKENS), y(HIDDEN, MAX_TOKENS), factor
    integer :: provided, me, n_ranks, n_experts, tokens, wrong, t, h, k, ierror

    call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, ierror)
    call MPI_Comm_rank(MPI_COMM_WORLD, me, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, n_ranks, ierror)
    n_experts = n_ranks * EXPERTS_PER_RANK

    params%progress = TT_PROGRESS_CALLER
    call must(tt_world_create_fortran(MPI_COMM_WORLD, params, world))
    call make_exchange

    ! As many tokens as this rank likes: rank 0 has one, rank 1 two, ...
    tokens = mod(me, MAX_TOKENS) + 1
    do t = 1, tokens
        x(:, t) = [(real(mod(h, 100), c_float), h = 0, HIDDEN - 1)]
        choice(:, t) = [(mod(me + 3 * (t - 1) + 5 * k, n_experts), k = 0, TOP_K - 1)]
        weight(:, t) = 0.5
    end do
    call must(tt_exchange_prepare(exchange, handle, int(tokens, c_int64_t), choice, weight, TT_OK))
    call must(tt_exchange_dispatch_begin(exchange, handle, x, int(HIDDEN, c_int64_t), c_null_ptr))
    ! Rows fly: this is the time for work that needs none of them, such as a shared expert, with tt_world_progress now and then.
    call serve(me * EXPERTS_PER_RANK)
    call must(tt_exchange_combine_end(exchange, handle, y, int(HIDDEN, c_int64_t), c_null_ptr))

    wrong = 0
    do t = 1, tokens
        factor = 0.5 * (choice(1, t) + 2) + 0.5 * (choice(2, t) + 2)
        wrong = wrong + count(y(:, t) /= factor * x(:, t))
    end do
    n = tt_exchange_get_counters(exchange)
    print '(6(a, i0), a)', 'rank ', me, ': ', tokens, ' tokens, ', wrong, ' values wrong; ', n%rows_out, ' rows sent to others, ', &
        n%wire_bytes_out, ' bytes to other nodes'
    call tt_exchange_destroy(exchange)
    call tt_world_destroy(world)
    call MPI_Finalize(ierror)
    if (wrong /= 0) stop 1

contains

    subroutine must(status)
        integer(c_int), intent(in) :: status
        character(kind=c_char), pointer :: text(:)
        integer :: length
        if (status == TT_OK) return
        call c_f_pointer(tt_status_message(), text, [TT_STATUS_MESSAGE_BYTES])
        length = 0
        do while (text(length + 1) /= c_null_char)
            length = length + 1
        end do
        write (error_unit, '(1024a)') text(1:length)
        call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
    end subroutine

    ! Expert e doubles, trebles, ... what it gets.
    subroutine expert(e, row, result)
        integer, intent(in) :: e
        real(c_float), intent(in) :: row(HIDDEN)
        real(c_float), intent(out) :: result(HIDDEN)
        result = (e + 2) * row
    end subroutine

    ! Serves whatever has landed; the exchange moves on in the meantime.
    subroutine serve(first_expert)
        integer, intent(in) :: first_expert
        type(tt_exchange_state) :: state
        type(tt_exchange_rows) :: rows
        real(c_float) :: row(HIDDEN), result(HIDDEN)
        integer(c_int32_t) :: i
        do
            call must(tt_exchange_poll(exchange, handle, state))
            do while (tt_exchange_next_ready(exchange, handle, rows))
                do i = 0, rows%n - 1
                    call tt_exchange_get_row(exchange, rows, i, row)
                    call expert(first_expert + rows%slot, row, result)
                    call tt_exchange_put_result(exchange, handle, rows, i, result)
                end do
                call must(tt_exchange_push(exchange, handle, rows))
            end do
            if (state%all_arrived .and. .not. state%has_ready) exit
        end do
    end subroutine

    ! What create and set_owners get is copied: the arrays may go afterwards.
    subroutine make_exchange
        type(tt_exchange_params) :: p
        integer(c_int), allocatable, target :: everyone(:)
        integer(c_int32_t), allocatable, target :: rank(:), local(:)
        integer :: r, e
        allocate (everyone(n_ranks), rank(n_experts), local(n_experts))
        everyone = [(r, r = 0, n_ranks - 1)]
        rank = [(e / EXPERTS_PER_RANK, e = 0, n_experts - 1)] ! any map will do, and another one later, too
        local = [(mod(e, EXPERTS_PER_RANK), e = 0, n_experts - 1)]
        p%H = HIDDEN
        p%K = TOP_K
        p%max_tokens = MAX_TOKENS
        p%wire = TT_WIRE_BF16
        p%wire_back = TT_WIRE_F32
        p%source = c_loc(everyone)
        p%n_sources = n_ranks
        p%owner = c_loc(everyone)
        p%n_owners = n_ranks
        call must(tt_exchange_create(world, p, exchange))
        call must(tt_exchange_set_owners(exchange, tt_owner_map(int(n_experts, c_int64_t), c_loc(rank), c_loc(local)), 1_c_int64_t))
    end subroutine
end program
