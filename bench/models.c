/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of known models: names and shapes as PyTorch's parameters have them, in the order of the model.
 *   resnet50     torchvision.models.resnet50: 161 tensors, 25,557,032 elements (He et al. 2015, table 1)
 *   bert-large   transformers.BertForPreTraining, bert-large-uncased: 398 tensors, 336,226,108 elements
 *                (Devlin et al. 2018: 24 layers of 1024, 30,522 words)
 *   gpt2         transformers.GPT2LMHeadModel, gpt2: 148 tensors, 124,439,808 elements
 *                (Radford et al. 2019: 12 layers of 768, 50,257 words)
 * Weights that a model uses twice are one tensor. */
#include "bench.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static bool add(struct bench_model *m, size_t count, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool add(struct bench_model *m, size_t count, const char *format, ...)
{
    va_list arguments;

    if (m->n == m->room) {
        size_t room = m->room ? 2 * m->room : 256;
        struct bench_tensor *more = realloc(m->tensor, room * sizeof *more);
        if (!more)
            return bench_complain("no memory for %zu tensors", room);
        m->tensor = more;
        m->room = room;
    }
    va_start(arguments, format);
    vsnprintf(m->tensor[m->n].name, sizeof m->tensor->name, format, arguments);
    va_end(arguments);
    m->tensor[m->n++].count = count;
    m->elements += count;
    return true;
}

/* A weight and a bias. */
static bool pair(struct bench_model *m, size_t weight, size_t bias, const char *name)
{
    return add(m, weight, "%s.weight", name) && add(m, bias, "%s.bias", name);
}

/* ---- ResNet-50 ---- */

static bool convolution(struct bench_model *m, const char *block, const char *conv, const char *norm, size_t in, size_t out,
                        size_t side)
{
    char name[64];

    snprintf(name, sizeof name, "%s%s", block, norm);
    return add(m, out * in * side * side, "%s%s.weight", block, conv) && pair(m, out, out, name);
}

static bool resnet50(struct bench_model *m)
{
    static const int blocks[] = { 3, 4, 6, 3 };
    size_t in = 64;
    bool fine = convolution(m, "", "conv1", "bn1", 3, 64, 7);

    for (int layer = 0; layer < 4; layer++) {
        size_t width = (size_t)64 << layer;
        for (int b = 0; b < blocks[layer] && fine; b++) {
            char name[32];
            snprintf(name, sizeof name, "layer%d.%d.", layer + 1, b);
            fine = convolution(m, name, "conv1", "bn1", in, width, 1) &&
                   convolution(m, name, "conv2", "bn2", width, width, 3) &&
                   convolution(m, name, "conv3", "bn3", width, 4 * width, 1) &&
                   (b || convolution(m, name, "downsample.0", "downsample.1", in, 4 * width, 1));
            in = 4 * width;
        }
    }
    return fine && pair(m, 2048 * 1000, 1000, "fc");
}

/* ---- BERT large ---- */

static bool linear(struct bench_model *m, const char *before, const char *name, size_t in, size_t out)
{
    char whole[64];

    snprintf(whole, sizeof whole, "%s%s", before, name);
    return pair(m, in * out, out, whole);
}

static bool bert_large(struct bench_model *m)
{
    enum { WIDTH = 1024, WORDS = 30522 };
    bool fine = add(m, (size_t)WORDS * WIDTH, "embeddings.word_embeddings.weight") &&
                add(m, 512 * WIDTH, "embeddings.position_embeddings.weight") &&
                add(m, 2 * WIDTH, "embeddings.token_type_embeddings.weight") &&
                pair(m, WIDTH, WIDTH, "embeddings.LayerNorm");

    for (int i = 0; i < 24 && fine; i++) {
        char layer[32];
        snprintf(layer, sizeof layer, "encoder.layer.%d.", i);
        fine = linear(m, layer, "attention.self.query", WIDTH, WIDTH) && linear(m, layer, "attention.self.key", WIDTH, WIDTH) &&
               linear(m, layer, "attention.self.value", WIDTH, WIDTH) &&
               linear(m, layer, "attention.output.dense", WIDTH, WIDTH) &&
               linear(m, layer, "attention.output.LayerNorm", 1, WIDTH) &&
               linear(m, layer, "intermediate.dense", WIDTH, 4 * WIDTH) && linear(m, layer, "output.dense", 4 * WIDTH, WIDTH) &&
               linear(m, layer, "output.LayerNorm", 1, WIDTH);
    }
    return fine && linear(m, "", "pooler.dense", WIDTH, WIDTH) && add(m, WORDS, "cls.predictions.bias") &&
           linear(m, "cls.predictions.", "transform.dense", WIDTH, WIDTH) &&
           linear(m, "cls.predictions.", "transform.LayerNorm", 1, WIDTH) &&
           linear(m, "cls.", "seq_relationship", WIDTH, 2);
}

/* ---- GPT-2 small ---- */

static bool gpt2(struct bench_model *m)
{
    enum { WIDTH = 768, WORDS = 50257 };
    bool fine = add(m, (size_t)WORDS * WIDTH, "wte.weight") && add(m, 1024 * WIDTH, "wpe.weight");

    for (int i = 0; i < 12 && fine; i++) {
        char layer[16];
        snprintf(layer, sizeof layer, "h.%d.", i);
        fine = linear(m, layer, "ln_1", 1, WIDTH) && linear(m, layer, "attn.c_attn", WIDTH, 3 * WIDTH) &&
               linear(m, layer, "attn.c_proj", WIDTH, WIDTH) && linear(m, layer, "ln_2", 1, WIDTH) &&
               linear(m, layer, "mlp.c_fc", WIDTH, 4 * WIDTH) && linear(m, layer, "mlp.c_proj", 4 * WIDTH, WIDTH);
    }
    return fine && pair(m, WIDTH, WIDTH, "ln_f");
}

/* ---- from a file: lines "name count", "name 64x3x7x7"; # begins a comment ---- */

static bool read_count(const char *text, size_t *count)
{
    *count = 1;
    for (char *end; *text; text = *end == 'x' ? end + 1 : end) {
        errno = 0;
        unsigned long long n = strtoull(text, &end, 10);
        if (end == text || errno || *text == '-' || (*end && (*end != 'x' || !end[1])) ||
            __builtin_mul_overflow(*count, n, count))
            return false;
    }
    return true;
}

static bool read_line(struct bench_model *m, const char *path, int number, char *line)
{
    char name[sizeof m->tensor->name], shape[80], more;
    size_t count;

    line[strcspn(line, "#\n")] = 0;
    int fields = sscanf(line, " %63s %79s %c", name, shape, &more);
    if (fields <= 0)
        return true;
    if (fields != 2 || !read_count(shape, &count))
        return bench_complain("%s, line %d: give a name and a count or a shape, such as \"conv1.weight 64x3x7x7\"", path, number);
    return add(m, count, "%s", name);
}

static bool read_model(struct bench_model *m, const char *path)
{
    FILE *in = fopen(path, "r");
    char line[200];
    bool fine = true;

    if (!in)
        return bench_complain("--model is resnet50, bert-large, gpt2 or a file; '%s' cannot be read", path);
    for (int number = 1; fine && fgets(line, sizeof line, in); number++)
        fine = read_line(m, path, number, line);
    fine = fine && (!ferror(in) || bench_complain("%s could not be read to its end", path));
    fclose(in);
    return fine && (m->elements > 0 || bench_complain("%s has no tensors", path));
}

bool bench_model_load(struct bench_model *m, const char *name)
{
    *m = (struct bench_model){ .name = name };
    if (!strcmp(name, "resnet50"))
        return resnet50(m);
    if (!strcmp(name, "bert-large"))
        return bert_large(m);
    if (!strcmp(name, "gpt2"))
        return gpt2(m);
    return read_model(m, name);
}
