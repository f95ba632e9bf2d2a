#include "shared/gpus.h"

#include "shared/options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char *const zs_precision_names[ZS_N_PRECISIONS] = {"fp32", "bf16"};

#define GIB(n) ((int64_t)(n) << 30)
/* ECC bits of GDDR6 lie in the memory itself and take 1/16 of it; HBM has room of its own for them.
 * With ECC on, nvidia-smi shows 15360 MiB on a T4 and 23034 MiB on an L4. */
#define GIB_ECC(n) (GIB(n) / 16 * 15)
#define TERA(x) ((x)*1e12)
#define GIGA(x) ((x)*1e9)

/* Data sheets give NVLink and PCIe as the sum of both directions: halved here. Bridges that join
 * pairs only (RTX A6000, RTX 3090, Turing cards) are optional and not counted: PCIe stands for
 * these. Peaks marked there "with sparsity" are halved too. H200: 141 GB on the data sheet,
 * 143771 MiB by nvidia-smi, counted as 140 GiB. GeForce figures are those at the reference boost
 * clock. */
/* clang-format off */
static const zs_gpu gpus[] = {
    /* type, product, size, memory, capability, {fp32, bf16}, memory bandwidth, intra, source */
    {"H200", "NVIDIA H200", 141, GIB(140), 90, {TERA(67), TERA(989.5)}, TERA(4.8), GIGA(450),
     "NVIDIA H200 Tensor Core GPU data sheet, 2024 (SXM)"},
    {"GH200-96", "NVIDIA GH200 480GB", 96, GIB(95), 90, {TERA(67), TERA(989.5)}, TERA(4), GIGA(450),
     "NVIDIA GH200 Grace Hopper Superchip data sheet, 2023 (96 GB HBM3)"},
    {"H100-80", "NVIDIA H100 80GB HBM3", 80, GIB(80), 90, {TERA(67), TERA(989.5)}, TERA(3.35), GIGA(450),
     "NVIDIA H100 Tensor Core GPU data sheet, 2023 (SXM)"},
    {"A100-80", "NVIDIA A100-SXM4-80GB", 80, GIB(80), 80, {TERA(19.5), TERA(312)}, GIGA(2039), GIGA(300),
     "NVIDIA A100 Tensor Core GPU data sheet, June 2021 (SXM)"},
    {"A100-40", "NVIDIA A100-SXM4-40GB", 40, GIB(40), 80, {TERA(19.5), TERA(312)}, GIGA(1555), GIGA(300),
     "NVIDIA A100 Tensor Core GPU data sheet, 2020 (SXM)"},
    {"L40S", "NVIDIA L40S", 48, GIB_ECC(48), 89, {TERA(91.6), TERA(362.05)}, GIGA(864), GIGA(32),
     "NVIDIA L40S data sheet, 2023; PCIe 4.0 x16"},
    {"L4", "NVIDIA L4", 24, GIB_ECC(24), 89, {TERA(30.3), TERA(121)}, GIGA(300), GIGA(32),
     "NVIDIA L4 Tensor Core GPU data sheet, 2023; PCIe 4.0 x16"},
    {"A40", "NVIDIA A40", 48, GIB_ECC(48), 86, {TERA(37.4), TERA(149.7)}, GIGA(696), GIGA(32),
     "NVIDIA A40 data sheet, 2021; PCIe 4.0 x16"},
    {"A10", "NVIDIA A10", 24, GIB_ECC(24), 86, {TERA(31.2), TERA(125)}, GIGA(600), GIGA(32),
     "NVIDIA A10 data sheet, 2021; PCIe 4.0 x16"},
    {"A6000", "NVIDIA RTX A6000", 48, GIB(48), 86, {TERA(38.7), TERA(154.8)}, GIGA(768), GIGA(32),
     "NVIDIA Ampere GA102 GPU Architecture whitepaper V2, 2021; PCIe 4.0 x16; ECC off as shipped"},
    {"V100-32", "Tesla V100-SXM2-32GB", 32, GIB(32), 70, {TERA(15.7), 0}, GIGA(900), GIGA(150),
     "NVIDIA V100 Tensor Core GPU data sheet, January 2020 (SXM2)"},
    {"V100-16", "Tesla V100-SXM2-16GB", 16, GIB(16), 70, {TERA(15.7), 0}, GIGA(900), GIGA(150),
     "NVIDIA V100 Tensor Core GPU data sheet, January 2020 (SXM2)"},
    {"P100-16", "Tesla P100-SXM2-16GB", 16, GIB(16), 60, {TERA(10.6), 0}, GIGA(732), GIGA(80),
     "NVIDIA Tesla P100 data sheet, 2016 (SXM2)"},
    {"T4", "Tesla T4", 16, GIB_ECC(16), 75, {TERA(8.1), 0}, GIGA(320), GIGA(16),
     "NVIDIA T4 data sheet, 2019; PCIe 3.0 x16"},
    {"RTX-4090", "NVIDIA GeForce RTX 4090", 24, GIB(24), 89, {TERA(82.6), TERA(165.2)}, GIGA(1008), GIGA(32),
     "NVIDIA Ada GPU Architecture whitepaper V2, 2023, appendix A; PCIe 4.0 x16"},
    {"RTX-3090", "NVIDIA GeForce RTX 3090", 24, GIB(24), 86, {TERA(35.6), TERA(71)}, GIGA(936), GIGA(32),
     "NVIDIA Ampere GA102 GPU Architecture whitepaper V2, 2021, table 9; PCIe 4.0 x16"},
    {"RTX-2080Ti", "NVIDIA GeForce RTX 2080 Ti", 11, GIB(11), 75, {TERA(13.4), 0}, GIGA(616), GIGA(16),
     "NVIDIA Turing GPU Architecture whitepaper, 2018; PCIe 3.0 x16"},
    {"RTX-2080", "NVIDIA GeForce RTX 2080", 8, GIB(8), 75, {TERA(10.1), 0}, GIGA(448), GIGA(16),
     "NVIDIA Turing GPU Architecture whitepaper, 2018, appendix A; PCIe 3.0 x16"},
    {"Titan-RTX", "NVIDIA TITAN RTX", 24, GIB(24), 75, {TERA(16.3), 0}, GIGA(672), GIGA(16),
     "NVIDIA TITAN RTX product page, December 2018; PCIe 3.0 x16"},
};
/* clang-format on */

enum { N_GPUS = sizeof gpus / sizeof *gpus, KEY_SIZE = 64 };

/* Lower case without "-", "_" and blanks; false if it does not fit. */
static bool fold(char key[KEY_SIZE], const char *text)
{
    int n = 0;
    for (; *text; text++) {
        if (*text == '-' || *text == '_' || *text == ' ')
            continue;
        if (n == KEY_SIZE - 1)
            return false;
        key[n++] = (char)tolower((unsigned char)*text);
    }
    key[n] = 0;
    return true;
}

/* The type without the size in its name: "a100" of "A100-80". */
static void fold_family(char key[KEY_SIZE], const zs_gpu *gpu)
{
    char size[16];
    fold(key, gpu->type);
    snprintf(size, sizeof size, "-%d", gpu->nominal_gb);
    const size_t n = strlen(gpu->type), n_size = strlen(size);
    if (n > n_size && strcmp(gpu->type + n - n_size, size) == 0)
        key[strlen(key) - (n_size - 1)] = 0;
}

static int n_sizes(const char *family)
{
    int n = 0;
    for (int i = 0; i < N_GPUS; i++) {
        char other[KEY_SIZE];
        fold_family(other, &gpus[i]);
        n += strcmp(other, family) == 0;
    }
    return n;
}

static bool matches(const zs_gpu *gpu, const char *key)
{
    char family[KEY_SIZE], product[KEY_SIZE];
    fold_family(family, gpu);
    fold(product, gpu->product);
    if (strcmp(key, product) == 0)
        return true;
    const size_t n = strlen(family);
    if (strncmp(key, family, n) != 0)
        return false;
    const char *size = key + n;
    if (!*size)
        return n_sizes(family) == 1;
    if (!isdigit((unsigned char)*size) || *size == '0')
        return false;
    char *unit;
    return strtol(size, &unit, 10) == gpu->nominal_gb &&
           (!*unit || strcmp(unit, "g") == 0 || strcmp(unit, "gb") == 0);
}

const zs_gpu *zs_gpus_find(const char *type)
{
    char key[KEY_SIZE];
    if (!fold(key, type))
        return NULL;
    for (int i = 0; i < N_GPUS; i++)
        if (matches(&gpus[i], key))
            return &gpus[i];
    return NULL;
}

const zs_gpu *zs_gpus_all(int *n)
{
    *n = N_GPUS;
    return gpus;
}

static void append(char *text, size_t size, const char *word, const char *separator)
{
    const size_t n = strlen(text);
    snprintf(text + n, size - n, "%s%s", n ? separator : "", word);
}

bool zs_gpus_fail_unknown(const char *type, zs_error *err)
{
    char key[KEY_SIZE], known[512] = "", sizes[64] = "";
    const char *names[N_GPUS];
    const bool fits = fold(key, type);
    for (int i = 0; i < N_GPUS; i++) {
        char family[KEY_SIZE];
        names[i] = gpus[i].type;
        append(known, sizeof known, gpus[i].type, ", ");
        fold_family(family, &gpus[i]);
        if (fits && strcmp(key, family) == 0)
            append(sizes, sizeof sizes, gpus[i].type, " or ");
    }
    if (sizes[0])
        return ZS_FAIL(err, ZS_ERR_INPUT, "GPU type \"%s\" has several sizes, write %s", type,
                       sizes);
    const char *nearest = fits ? zs_options_nearest(type, names, N_GPUS) : NULL;
    if (nearest)
        return ZS_FAIL(err, ZS_ERR_INPUT,
                       "unknown GPU type \"%.64s\", did you mean \"%s\"? known: %s", type, nearest,
                       known);
    return ZS_FAIL(err, ZS_ERR_INPUT, "unknown GPU type \"%.64s\"; known: %s", type, known);
}
