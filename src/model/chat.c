/* chat.c - the ids of a conversation.
 *
 * The template is rendered to one text with a mark on each byte that came from a message. Special
 * tokens count only where the template spelled them; between two of them, template and message
 * are encoded as one text, in which special tokens stay text. So a message can say anything and
 * forge nothing, and ordinary messages get the ids that the reference gives them. */
#include "tokenizer_internal.h"
#include <string.h>

/* One BOS if the files ask for it, wherever it comes from: the template or us. */
static tt_status add_missing_bos(const tt_tokenizer *t, tt_ids *ids, size_t n_before)
{
    if (!t->wants_bos || (ids->n > n_before && ids->id[n_before] == t->bos_id)) {
        return TT_OK;
    }
    TT_TRY(tt_ids_append(ids, &t->bos_id, 1));
    memmove(ids->id + n_before + 1, ids->id + n_before, (ids->n - n_before - 1) * sizeof(*ids->id));
    ids->id[n_before] = t->bos_id;
    return TT_OK;
}

static tt_status encode_rendered(const tt_tokenizer *t, const tt_text *text, const tt_text *mark,
                                 tt_ids *ids)
{
    size_t n_before = ids->n;
    TT_TRY(tti_tokenizer_encode_marked(t, text->bytes, (const unsigned char *)mark->bytes, text->n,
                                       ids));
    tt_status st = add_missing_bos(t, ids, n_before);
    if (st != TT_OK) {
        ids->n = n_before;
    }
    return st;
}

tt_status tt_tokenizer_encode_chat(const tt_tokenizer *tokenizer, const tt_chat_message *messages,
                                   size_t n_messages, tt_ids *ids)
{
    TT_CHECK(tokenizer && ids && (messages || n_messages == 0), TT_ERR_ARG,
             "tt_tokenizer_encode_chat: a pointer is NULL");
    TT_CHECK(tokenizer->chat_template, TT_ERR_FILE,
             "the model has no chat template (no \"chat_template\" in tokenizer_config.json, no "
             "chat_template.jinja)");
    for (size_t i = 0; i < n_messages; i++) {
        TT_CHECK(messages[i].role && messages[i].content, TT_ERR_REQUEST,
                 "message %zu has no role or no content", i);
    }
    tti_chat_input input = {.message = messages,
                            .n_messages = n_messages,
                            .bos_token = tokenizer->bos_token,
                            .eos_token = tokenizer->eos_token,
                            .add_generation_prompt = true};
    tt_text text = {0}, mark = {0};
    tt_status st =
        tti_chat_render(tokenizer->chat_template, tokenizer->n_chat_template, &input, &text, &mark);
    if (st == TT_OK) {
        st = encode_rendered(tokenizer, &text, &mark, ids);
    }
    tt_text_fini(&text);
    tt_text_fini(&mark);
    return st;
}
