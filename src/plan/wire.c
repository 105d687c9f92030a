/* wire.c - the forms of rows on their way: names, and which one costs nothing. */
#include "tutti/load.h"
#include "tutti/plan.h"

const char *tt_wire_name(tt_wire wire)
{
    static const char *const names[] = {[TT_WIRE_F32] = "f32",
                                        [TT_WIRE_BF16] = "bf16",
                                        [TT_WIRE_INT8] = "int8",
                                        [TT_WIRE_FP8] = "fp8"};
    _Static_assert(sizeof(names) / sizeof(names[0]) == TT_WIRE_COUNT, "each has a name");
    return names[wire];
}

/* Whether an expert's product takes rows as `act` has them. */
static bool takes_rounded(const tt_model *model, tt_weight_format weights, tt_act act, tt_role role,
                          int64_t layer, int64_t expert)
{
    const tt_tensor tensor = tt_model_tensor(model, role, layer, expert);
    const ttk_format format = tt_load_format(weights, &tensor);
    return !ttk_format_is_plain(&format) &&
           (act != TT_ACT_INT8 || ttk_can_act8(&format, tensor.cols));
}

tt_wire tt_plan_lossless_wire(const tt_model *model, tt_weight_format weights, tt_act act)
{
    const tt_arch *arch = tt_model_arch(model);
    bool is_lossless = act != TT_ACT_F32 && arch->E > 0 && !arch->router.weight_on_input;
    for (int64_t layer = 0; layer < arch->L && is_lossless; layer++) {
        for (int64_t e = 0; e < arch->E && arch->layer[layer].is_moe && is_lossless; e++) {
            is_lossless = takes_rounded(model, weights, act, TT_ROLE_EXPERT_GATE, layer, e) &&
                          takes_rounded(model, weights, act, TT_ROLE_EXPERT_UP, layer, e);
        }
    }
    return !is_lossless ? TT_WIRE_F32 : act == TT_ACT_INT8 ? TT_WIRE_INT8 : TT_WIRE_BF16;
}
