/* formats_as_given.c - stands in for the model room where tests give tensors of their own: each is
 * loaded in the format that it has. */
#include "tutti/load.h"

ttk_format tt_load_format(tt_weight_format weights, const tt_tensor *tensor)
{
    (void)weights;
    return tensor->format;
}

ttk_format tt_load_format_transposed(tt_weight_format weights, const tt_tensor *tensor, int64_t row,
                                     int64_t n_rows)
{
    (void)row;
    (void)n_rows;
    return tt_load_format(weights, tensor);
}
