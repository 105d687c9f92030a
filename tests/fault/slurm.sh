#!/bin/sh
# slurm.sh - a real slurmctld and two slurmd on nodes of their own (network namespaces): the same bytes and text as one rank, by srun and
# by the batch script as it stands; a missing PMI is refused by name; a rank that stops or dies is named.
set -u
. "$top_srcdir/tests/fault/lib.sh"
TUTTI_VERBOSE=0 # no warnings that few cores serve many ranks: error lines are counted
export TUTTI_VERBOSE
TMPDIR=$work # ranks that srun starts keep Open MPI's session here; the folders of an earlier job, which has the same number, may just be going
export TMPDIR
PATH=$PATH:/usr/sbin:/sbin
for tool in slurmctld slurmd srun sbatch scontrol sinfo munged; do
    command -v $tool >/dev/null || skip_all "no program $tool"
done
need_nodes 3 # n3 is where the controller runs and jobs are sent from
daemons="$work/nodes/daemons"
mkdir "$daemons" "$daemons/state" "$daemons/n1" "$daemons/n2"
chmod 755 "$work" "$work/nodes" "$daemons" # munged will not keep its socket where others cannot reach it
on() { # on NODE COMMAND...
    sh "$nodes" exec "$@"
}
stop_slurm() {
    for file in "$daemons"/*.pid; do
        [ ! -s "$file" ] || kill -9 "$(cat "$file")" 2>/dev/null
    done
}
trap 'end_all; stop_slurm; remove_nodes; rm -rf "$work"' EXIT

# ---- bring-up; what fails here is not ours to report ----
cat >"$daemons/slurm.conf" <<CONF
ClusterName=tutti
SlurmctldHost=n3(198.18.$NODES.3)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket=$daemons/munge.socket
SlurmctldPort=16817
SlurmdPort=16818
StateSaveLocation=$daemons/state
SlurmdSpoolDir=$daemons/%n
SlurmctldPidFile=$daemons/slurmctld.pid
SlurmdPidFile=$daemons/slurmd.%n.pid
SlurmctldLogFile=$daemons/slurmctld.log
SlurmdLogFile=$daemons/slurmd.%n.log
TmpFS=$work/nodes/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName=n1 NodeAddr=198.18.$NODES.1 CPUs=4 RealMemory=1000
NodeName=n2 NodeAddr=198.18.$NODES.2 CPUs=4 RealMemory=1000
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
SLURM_CONF=$daemons/slurm.conf
export SLURM_CONF
give_up() {
    for log in "$daemons"/*.log; do
        tail -n 5 "$log" | sed "s|^|# $(basename "$log"): |"
    done
    skip_all "$1"
}
head -c 1024 /dev/urandom >"$daemons/munge.key"
chmod 600 "$daemons/munge.key"
munged --force --socket="$daemons/munge.socket" --key-file="$daemons/munge.key" --pid-file="$daemons/munged.pid" \
    --log-file="$daemons/munged.log" --seed-file="$daemons/munge.seed" --num-threads=2 2>"$work/err" || give_up "no munged"
on n3 slurmctld -f "$SLURM_CONF" >"$work/out" 2>"$work/err" || give_up "no slurmctld"
for node in n1 n2; do
    on $node slurmd -f "$SLURM_CONF" -N $node >"$work/out" 2>"$work/err" || give_up "no slurmd"
done
waited=0
while [ "$(on n3 sinfo -h -N -t idle -o %N 2>/dev/null | wc -l)" -lt 2 ]; do
    [ $waited -lt 100 ] || give_up "the nodes of Slurm do not come up"
    sleep 0.3
    waited=$((waited + 1))
done

# Ranks keep to the made addresses.
OMPI_MCA_btl=self,vader,tcp
OMPI_MCA_pml=ob1
OMPI_MCA_btl_tcp_if_include=198.18.$NODES.0/24
export OMPI_MCA_btl OMPI_MCA_pml OMPI_MCA_btl_tcp_if_include
by_srun() { # by_srun OPTIONS... COMMAND...
    timeout -k 5 "$TT_TIMEOUT" sh "$nodes" exec n3 srun "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
}

# ---- the same bytes ----
head -n 3 "$top_srcdir/tests/layouts/ids/tiny.txt" >"$work/ids"
score="$tutti score $model --ids-file $work/ids --threads 1 --quiet"
name="one rank"
# shellcheck disable=SC2086 # words are wanted
ranks 1 $score --logits "$work/one.npy"
check "logits" [ -s "$work/one.npy" ]
while read -r layout options; do
    name="srun $layout of two nodes $options"
    rm -f "$work/out.npy"
    # shellcheck disable=SC2086
    by_srun -N 2 $layout --mpi=pmix $score --logits "$work/out.npy" --verbose 2 $options
    check "exit code 0" exits 0
    check "on both" [ "$(sed -n 's/.*: host \(n[12]\), .*/\1/p' "$work/err" | sort -u | wc -l)" -eq 2 ]
    check "the bytes of one rank" cmp "$work/one.npy" "$work/out.npy"
done <<'ROWS'
-n2 --dp 2 --tp 1
-n4 --dp 2 --tp 2
ROWS

# ---- launched wrongly ----
name="srun --mpi=none -n 2"
by_srun -N 1 -n 2 --mpi=none "$tutti" run "$model" -p Once -n 4 --quiet
check "exit code 2" exits 2
check "both numbers, and what to do" err_has '^tutti: .*started 2 processes .*world of 1: .*--mpi=pmix'
check "one line" one_error
check "no text" [ ! -s "$work/out" ]
name="srun --mpi=pmi2 -n 2"
one "$tutti" run "$model" -p Once -n 4 --quiet </dev/null
cp "$work/out" "$work/undisturbed"
by_srun -N 1 -n 2 --mpi=pmi2 "$tutti" run "$model" -p Once -n 4 --quiet
check "one text or none" eval '{ [ "$code" -ne 0 ] && [ ! -s "$work/out" ]; } || cmp "$work/undisturbed" "$work/out"'

# ---- without srun, inside a job ----
batch_job() { # batch_job SCRIPT
    timeout -k 5 "$TT_TIMEOUT" sh "$nodes" exec n3 sbatch --quiet --wait -N 2 -n 4 -o "$work/out" -e "$work/err" "$1" </dev/null
    code=$?
}
name="a lone process in a job of four tasks"
cat >"$work/lone.sh" <<JOB
#!/bin/sh
env | grep '^SLURM_NTASKS=' && exec "$tutti" run "$model" -p Once -n 4 --quiet
JOB
batch_job "$work/lone.sh"
check "exit code 0" exits 0
check "inherits the number of tasks" out_has '^SLURM_NTASKS=4$'
check "writes the same text" eval 'sed 1d "$work/out" | cmp - "$work/undisturbed"'

name="mpirun in a job of two nodes"
cat >"$work/mpirun.sh" <<JOB
#!/bin/sh
"$MPIRUN" -n 4 --map-by node --mca oob_tcp_if_include 198.18.$NODES.0/24 "$tutti" run "$model" -p Once -n 4 --json --quiet
JOB
batch_job "$work/mpirun.sh"
check "exit code 0" exits 0
check "four ranks on two nodes" out_has '"ranks":4,"nodes":2,'

# ---- the batch script ----
name="sbatch run.sbatch"
mkdir "$work/submit" # as if it were the folder where tutti was built
ln -s "$exe" "$work/submit/tutti"
one env TUTTI_DATADIR="$top_srcdir" "$tutti" run -p "Once upon a time" -n 32 --quiet </dev/null
cp "$work/out" "$work/undisturbed"
batch() { # batch OPTIONS... of sbatch; SCRIPT, options of tutti run
    (
        cd "$work/submit" || exit 1
        rm -f tutti-*.out
        TUTTI_DATADIR=$top_srcdir timeout -k 5 "$TT_TIMEOUT" sh "$nodes" exec n3 sbatch --quiet --wait --error="$work/err" "$@"
    ) </dev/null
    code=$?
    cat "$work/submit"/tutti-*.out >"$work/out"
}
batch "$top_srcdir/slurm/run.sbatch"
check "as it stands: exit code 0" exits 0
check "the text of one rank" cmp "$work/undisturbed" "$work/out"
check "on two ranks" err_has '^layout .*2 expert groups'
batch --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 "$top_srcdir/slurm/run.sbatch" "$model" -p Once -n 4 --json --threads 1
check "with options: exit code 0" exits 0
check "four ranks on two nodes" out_has '"ranks":4,"nodes":2,'

# ---- faults ----
make_prompts "$work/prompts"
long() { # long OPTIONS... of srun
    timeout -k 5 "$TT_TIMEOUT" sh "$nodes" exec n3 srun -N 2 -n 4 --ntasks-per-node=2 --mpi=pmix "$@" "$tutti" run "$model" --prompts "$work/prompts" \
        --max-batch 4 --json --deadline 5 --threads 1
}
name="rank 3 on n2 stops"
begin long
strike STOP 3
finish
check "it fails (exit code $code)" [ "$code" -ne 0 ]
check "rank and host are named" err_has '^tutti: .*waited .* for rank 3 \(n2\): .*answer'
check "in time (after $took s)" [ "$took" -le 25 ]
check "only what was complete is shown" only_complete_text
check "nobody is left" nobody_is_left
name="rank 2 on n2 is killed"
begin long --kill-on-bad-exit=1
strike KILL 2
finish
check "it fails (exit code $code)" [ "$code" -ne 0 ]
check "rank and host are named" eval 'err_has "error: n2: tasks? 2: Killed" || err_has "^tutti: .*rank 2 \\(n2\\)"'
check "in time (after $took s)" [ "$took" -le 25 ]
check "nobody is left" nobody_is_left
done_testing
