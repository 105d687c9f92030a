/* model_compare.h - two checkpoints of one model: the same tt_arch, and the same numbers in every
 * role of every layer and expert, however each of them stores it. All functions fail the running
 * test. */
#ifndef MODEL_COMPARE_H
#define MODEL_COMPARE_H
#include <stdint.h>
#include "tutti/model.h"
#include "tutti/status.h"

tt_model *open_model(const char *path);
/* Fails unless st is `want` and the message has both texts. */
void expect_message(tt_status st, tt_status want, const char *a, const char *b);
/* All numbers of a tensor, rows * cols; free() them. */
float *numbers(const tt_model *model, const tt_tensor *tensor);
/* Where row r of heads of width D lies in a file whose heads have the pairs (i, i + D/2) as
 * neighbours. */
int64_t unpermuted(int64_t r, int64_t D);
/* Rotary pairs may be neighbours in b, and latent attention may be split in b. A tensor that is all
 * zero fails: it compares nothing. */
void compare_models(const char *name, const tt_model *a, const tt_model *b);

#endif
