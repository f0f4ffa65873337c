/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The body of a vector table, included once by each kernel_<isa>.c, which is compiled with that instruction set and defines
 * VECTOR_BYTES, VECTOR_KERNEL, VECTOR_NAME and the functions vector_stream(), load_half(), store_half(), load_brain() and
 * store_brain() on the types below. Elementwise code is written with GCC's vector extension, so it reads as arithmetic.
 *
 * Each reduction keeps its accumulators in registers over all sources and writes each result once.
 */
#define VECTOR(name, type) typedef type name __attribute__((vector_size(VECTOR_BYTES), aligned(1), may_alias))

VECTOR(float_vector, float);
VECTOR(double_vector, double);
VECTOR(int8_vector, int8_t);
VECTOR(int16_vector, int16_t);
VECTOR(int32_vector, int32_t);
VECTOR(int64_vector, int64_t);
VECTOR(uint8_vector, uint8_t);

/* 16-bit storage of one float_vector. */
typedef uint16_t half_vector __attribute__((vector_size(VECTOR_BYTES / 2), aligned(1), may_alias));

static inline void vector_stream(char *at, const void *vector);
static inline void half_stream(char *at, const void *vector);
static inline float_vector load_half(const char *at);
static inline half_vector store_half(float_vector value);
static inline float_vector load_brain(const char *at);
static inline half_vector store_brain(float_vector value);

/* Lines this far ahead are fetched for writing: about the latency of a line from another core at full speed. */
enum { AHEAD_BYTES = 1024, LINE_BYTES = 64, UNROLL = 4 };

#define INLINE static inline __attribute__((always_inline))

/* How a stored type is loaded to and stored from its accumulator type. */
#define DEFINE_DIRECT(name, vector)                                                                                                                  \
    INLINE vector load_##name(const char *at)                                                                                                        \
    {                                                                                                                                                \
        return *(const vector *)at;                                                                                                                  \
    }                                                                                                                                                \
    INLINE void put_##name(char *at, vector value, bool stream)                                                                                      \
    {                                                                                                                                                \
        if (stream) {                                                                                                                                \
            vector_stream(at, &value);                                                                                                               \
        } else {                                                                                                                                     \
            *(vector *)at = value;                                                                                                                   \
        }                                                                                                                                            \
    }
DEFINE_DIRECT(float32, float_vector)
DEFINE_DIRECT(float64, double_vector)
DEFINE_DIRECT(int8, int8_vector)
DEFINE_DIRECT(int16, int16_vector)
DEFINE_DIRECT(int32, int32_vector)
DEFINE_DIRECT(int64, int64_vector)
DEFINE_DIRECT(uint8, uint8_vector)

#define DEFINE_NARROWED(name, narrow)                                                                                                                \
    INLINE void put_##name(char *at, float_vector value, bool stream)                                                                                \
    {                                                                                                                                                \
        half_vector stored = narrow(value);                                                                                                          \
                                                                                                                                                     \
        if (stream) {                                                                                                                                \
            half_stream(at, &stored);                                                                                                                \
        } else {                                                                                                                                     \
            *(half_vector *)at = stored;                                                                                                             \
        }                                                                                                                                            \
    }
DEFINE_NARROWED(float16, store_half)
DEFINE_NARROWED(bfloat16, store_brain)
#define load_float16 load_half
#define load_bfloat16 load_brain

INLINE uint8_vector load_truth(const char *at)
{
    return (uint8_vector)(*(const uint8_vector *)at != 0) & 1;
}
#define put_truth put_uint8

/* first op second, `first` being what earlier ranks gave. `op` is a constant wherever this is inlined. */
#define PICK(type, bits, mask, first, second) ((type)(((mask) & (bits)(first)) | (~(mask) & (bits)(second))))
#define DEFINE_COMBINE(type, bits)                                                                                                                   \
    INLINE type combine_##type(const enum pl_op op, type first, type second)                                                                         \
    {                                                                                                                                                \
        bits equal = (bits)(first == second);                                                                                                        \
                                                                                                                                                     \
        if (op == PL_PRODUCT) {                                                                                                                      \
            return first * second;                                                                                                                   \
        }                                                                                                                                            \
        if (op == PL_MIN) {                                                                                                                          \
            bits mask = (bits)(first < second) | (bits)(first != first);                                                                             \
                                                                                                                                                     \
            return (type)((bits)PICK(type, bits, mask, first, second) | (equal & (bits)first)); /* keeps the sign of -0 */                           \
        }                                                                                                                                            \
        if (op == PL_MAX) {                                                                                                                          \
            bits mask = (bits)(first > second) | (bits)(first != first);                                                                             \
                                                                                                                                                     \
            return (type)((bits)PICK(type, bits, mask, first, second) & (~equal | (bits)first)); /* drops the sign of -0 */                          \
        }                                                                                                                                            \
        return first + second;                                                                                                                       \
    }
DEFINE_COMBINE(float_vector, int32_vector)
DEFINE_COMBINE(double_vector, int64_vector)
DEFINE_COMBINE(int8_vector, int8_vector)
DEFINE_COMBINE(int16_vector, int16_vector)
DEFINE_COMBINE(int32_vector, int32_vector)
DEFINE_COMBINE(int64_vector, int64_vector)
DEFINE_COMBINE(uint8_vector, uint8_vector)

INLINE uint8_vector combine_truth(const enum pl_op op, uint8_vector first, uint8_vector second)
{
    return op == PL_PRODUCT || op == PL_MIN ? first & second : first | second;
}

/* What the loops need beside the op. */
struct loop {
    void *const *dest;
    const void *const *source;
    uint32_t dests;
    uint32_t sources;
    double prescale;
    double divisor;
    double postscale;
    bool stream;
    bool migrate;
};

INLINE void fetch_ahead(const struct loop *loop, size_t at, size_t bytes)
{
    for (uint32_t j = 0; j < loop->dests; j++) {
        for (size_t line = 0; line < bytes; line += LINE_BYTES) {
            __builtin_prefetch((const char *)loop->dest[j] + at + AHEAD_BYTES + line, 1, 3);
        }
    }
}

/* Bytes until all destinations are aligned for streaming; SIZE_MAX when they never are together. */
static size_t bytes_to_aligned(const struct loop *loop, size_t align)
{
    size_t misaligned = (uintptr_t)loop->dest[0] % align;

    for (uint32_t j = 1; j < loop->dests; j++) {
        if ((uintptr_t)loop->dest[j] % align != misaligned) {
            return SIZE_MAX;
        }
    }
    return (align - misaligned) % align;
}

#define SCALE_FLOATS(value, factor) ((value) * (factor))
#define FINISH_FLOATS(value) ((value) / divisor * postscale)
#define SCALE_NOTHING(value, factor) (value)
#define FINISH_NOTHING(value) (value)

/*
 * name_step()  `vectors` whole vectors at byte `at` of each buffer.
 * name_part()  less than one vector, through a zeroed one and so through the same arithmetic.
 * name_loop()  a buffer: a part up to alignment when streaming, steps of UNROLL vectors, steps of one, a part.
 * `op`, `scaled` and `vectors` are constants where these are inlined, so the common loops hold no branches but their own.
 */
#define DEFINE_LOOP(name, type, lane, stored_bytes, combine, SCALE, FINISH)                                                                          \
    INLINE void name##_step(const struct loop *loop, size_t at, const uint32_t vectors, const enum pl_op op, const bool scaled, bool stream)         \
    {                                                                                                                                                \
        const lane prescale = (lane)loop->prescale;                                                                                                  \
        const lane divisor = (lane)loop->divisor;                                                                                                    \
        const lane postscale = (lane)loop->postscale;                                                                                                \
        type sum[UNROLL];                                                                                                                            \
                                                                                                                                                     \
        (void)prescale, (void)divisor, (void)postscale;                                                                                              \
        _Pragma("GCC unroll 4") for (uint32_t v = 0; v < vectors; v++)                                                                               \
        {                                                                                                                                            \
            type value = load_##name((const char *)loop->source[0] + at + v * (stored_bytes));                                                       \
            if (scaled) {                                                                                                                            \
                value = SCALE(value, prescale);                                                                                                      \
            }                                                                                                                                        \
            sum[v] = value;                                                                                                                          \
        }                                                                                                                                            \
        for (uint32_t k = 1; k < loop->sources; k++) {                                                                                               \
            _Pragma("GCC unroll 4") for (uint32_t v = 0; v < vectors; v++)                                                                           \
            {                                                                                                                                        \
                type value = load_##name((const char *)loop->source[k] + at + v * (stored_bytes));                                                   \
                if (scaled) {                                                                                                                        \
                    value = SCALE(value, prescale);                                                                                                  \
                }                                                                                                                                    \
                sum[v] = combine(op, sum[v], value);                                                                                                 \
            }                                                                                                                                        \
        }                                                                                                                                            \
        _Pragma("GCC unroll 4") for (uint32_t v = 0; scaled && v < vectors; v++)                                                                     \
        {                                                                                                                                            \
            sum[v] = FINISH(sum[v]);                                                                                                                 \
        }                                                                                                                                            \
        for (uint32_t j = 0; j < loop->dests; j++) {                                                                                                 \
            _Pragma("GCC unroll 4") for (uint32_t v = 0; v < vectors; v++)                                                                           \
            {                                                                                                                                        \
                put_##name((char *)loop->dest[j] + at + v * (stored_bytes), sum[v], stream);                                                         \
            }                                                                                                                                        \
        }                                                                                                                                            \
    }                                                                                                                                                \
    INLINE void name##_part(const struct loop *loop, size_t at, size_t bytes, const enum pl_op op, const bool scaled)                                \
    {                                                                                                                                                \
        char padded[VECTOR_BYTES] = {0};                                                                                                             \
        const lane prescale = (lane)loop->prescale;                                                                                                  \
        const lane divisor = (lane)loop->divisor;                                                                                                    \
        const lane postscale = (lane)loop->postscale;                                                                                                \
        type sum = {0};                                                                                                                              \
                                                                                                                                                     \
        (void)prescale, (void)divisor, (void)postscale;                                                                                              \
        for (uint32_t k = 0; k < loop->sources; k++) {                                                                                               \
            type value;                                                                                                                              \
                                                                                                                                                     \
            memcpy(padded, (const char *)loop->source[k] + at, bytes);                                                                               \
            value = load_##name(padded);                                                                                                             \
            if (scaled) {                                                                                                                            \
                value = SCALE(value, prescale);                                                                                                      \
            }                                                                                                                                        \
            if (k == 0) {                                                                                                                            \
                sum = value;                                                                                                                         \
            } else {                                                                                                                                 \
                sum = combine(op, sum, value);                                                                                                       \
            }                                                                                                                                        \
        }                                                                                                                                            \
        if (scaled) {                                                                                                                                \
            sum = FINISH(sum);                                                                                                                       \
        }                                                                                                                                            \
        put_##name(padded, sum, false);                                                                                                              \
        for (uint32_t j = 0; j < loop->dests; j++) {                                                                                                 \
            memcpy((char *)loop->dest[j] + at, padded, bytes);                                                                                       \
        }                                                                                                                                            \
    }                                                                                                                                                \
    INLINE void name##_loop(const struct loop *loop, size_t bytes, const enum pl_op op, const bool scaled)                                           \
    {                                                                                                                                                \
        size_t head = loop->stream ? bytes_to_aligned(loop, (stored_bytes)) : 0;                                                                     \
        bool stream = loop->stream && head != SIZE_MAX && head % (sizeof(lane) * (stored_bytes) / VECTOR_BYTES) == 0;                                \
        size_t at = 0;                                                                                                                               \
                                                                                                                                                     \
        if (stream && head > 0 && head <= bytes) {                                                                                                   \
            name##_part(loop, 0, head, op, scaled);                                                                                                  \
            at = head;                                                                                                                               \
        }                                                                                                                                            \
        stream = stream && head <= bytes;                                                                                                            \
        for (; bytes - at >= UNROLL * (stored_bytes); at += UNROLL * (stored_bytes)) {                                                               \
            if (loop->migrate) {                                                                                                                     \
                fetch_ahead(loop, at, UNROLL *(stored_bytes));                                                                                       \
            }                                                                                                                                        \
            name##_step(loop, at, UNROLL, op, scaled, stream);                                                                                       \
        }                                                                                                                                            \
        for (; bytes - at >= (stored_bytes); at += (stored_bytes)) {                                                                                 \
            name##_step(loop, at, 1, op, scaled, stream);                                                                                            \
        }                                                                                                                                            \
        if (bytes > at) {                                                                                                                            \
            name##_part(loop, at, bytes - at, op, scaled);                                                                                           \
        }                                                                                                                                            \
    }

#define DEFINE_REDUCE(name, scales)                                                                                                                  \
    static void reduce_##name(const struct loop *loop, size_t bytes, enum pl_op op, bool scaled)                                                     \
    {                                                                                                                                                \
        switch (op) {                                                                                                                                \
        case PL_SUM:                                                                                                                                 \
        case PL_AVERAGE:                                                                                                                             \
            if (scales && scaled) {                                                                                                                  \
                name##_loop(loop, bytes, PL_SUM, scales);                                                                                            \
            } else {                                                                                                                                 \
                name##_loop(loop, bytes, PL_SUM, false);                                                                                             \
            }                                                                                                                                        \
            break;                                                                                                                                   \
        case PL_MIN:                                                                                                                                 \
            name##_loop(loop, bytes, PL_MIN, scales);                                                                                                \
            break;                                                                                                                                   \
        case PL_MAX:                                                                                                                                 \
            name##_loop(loop, bytes, PL_MAX, scales);                                                                                                \
            break;                                                                                                                                   \
        case PL_PRODUCT:                                                                                                                             \
            name##_loop(loop, bytes, PL_PRODUCT, scales);                                                                                            \
            break;                                                                                                                                   \
        case PL_ADASUM:                                                                                                                              \
        case PL_OP_COUNT:                                                                                                                            \
            break;                                                                                                                                   \
        }                                                                                                                                            \
    }

/* name, vector, lane, stored bytes of a vector, combine, scaling */
#define VECTOR_TYPE_LIST(X)                                                                                                                          \
    X(float32, float_vector, float, VECTOR_BYTES, combine_float_vector, SCALE_FLOATS, FINISH_FLOATS, true)                                           \
    X(float64, double_vector, double, VECTOR_BYTES, combine_double_vector, SCALE_FLOATS, FINISH_FLOATS, true)                                        \
    X(float16, float_vector, float, VECTOR_BYTES / 2, combine_float_vector, SCALE_FLOATS, FINISH_FLOATS, true)                                       \
    X(bfloat16, float_vector, float, VECTOR_BYTES / 2, combine_float_vector, SCALE_FLOATS, FINISH_FLOATS, true)                                      \
    X(int8, int8_vector, int8_t, VECTOR_BYTES, combine_int8_vector, SCALE_NOTHING, FINISH_NOTHING, false)                                            \
    X(int16, int16_vector, int16_t, VECTOR_BYTES, combine_int16_vector, SCALE_NOTHING, FINISH_NOTHING, false)                                        \
    X(int32, int32_vector, int32_t, VECTOR_BYTES, combine_int32_vector, SCALE_NOTHING, FINISH_NOTHING, false)                                        \
    X(int64, int64_vector, int64_t, VECTOR_BYTES, combine_int64_vector, SCALE_NOTHING, FINISH_NOTHING, false)                                        \
    X(uint8, uint8_vector, uint8_t, VECTOR_BYTES, combine_uint8_vector, SCALE_NOTHING, FINISH_NOTHING, false)                                        \
    X(truth, uint8_vector, uint8_t, VECTOR_BYTES, combine_truth, SCALE_NOTHING, FINISH_NOTHING, false)

#define DEFINE_TYPE(name, vector, lane, stored_bytes, combine, SCALE, FINISH, scales)                                                                \
    DEFINE_LOOP(name, vector, lane, stored_bytes, combine, SCALE, FINISH)                                                                            \
    DEFINE_REDUCE(name, scales)
VECTOR_TYPE_LIST(DEFINE_TYPE)

static bool is_integer(enum pl_dtype dtype)
{
    return dtype == PL_INT8 || dtype == PL_INT16 || dtype == PL_INT32 || dtype == PL_INT64 || dtype == PL_UINT8;
}

static void vector_reduce(const struct pl_reduction *reduction, void *const *dest, uint32_t dests, const void *const *source, uint32_t sources,
                          size_t count_elems)
{
    bool sums = reduction->op == PL_SUM || reduction->op == PL_AVERAGE;
    bool divides = sums && reduction->divisor > 1;
    bool scaled = divides || reduction->prescale != 1 || reduction->postscale != 1;
    struct loop loop = {
        .dest = dest,
        .source = source,
        .dests = dests,
        .sources = sources,
        .prescale = reduction->prescale,
        .divisor = divides ? (double)reduction->divisor : 1,
        .postscale = reduction->postscale,
        .stream = reduction->store == PL_KERNEL_STORE_STREAM,
        .migrate = reduction->store == PL_KERNEL_STORE_MIGRATE,
    };

    PL_BUG_IF(reduction->op >= PL_ADASUM || reduction->dtype >= PL_DTYPE_COUNT);
    if (scaled && is_integer(reduction->dtype)) {
        pl_kernel_plain.reduce(reduction, dest, dests, source, sources, count_elems); /* needs arithmetic wider than the type */
        return;
    }
    switch (reduction->dtype) {
    case PL_FLOAT32:
        reduce_float32(&loop, count_elems * 4, reduction->op, scaled);
        break;
    case PL_FLOAT64:
        reduce_float64(&loop, count_elems * 8, reduction->op, scaled);
        break;
    case PL_FLOAT16:
        reduce_float16(&loop, count_elems * 2, reduction->op, scaled);
        break;
    case PL_BFLOAT16:
        reduce_bfloat16(&loop, count_elems * 2, reduction->op, scaled);
        break;
    case PL_INT8:
        reduce_int8(&loop, count_elems, reduction->op, false);
        break;
    case PL_INT16:
        reduce_int16(&loop, count_elems * 2, reduction->op, false);
        break;
    case PL_INT32:
        reduce_int32(&loop, count_elems * 4, reduction->op, false);
        break;
    case PL_INT64:
        reduce_int64(&loop, count_elems * 8, reduction->op, false);
        break;
    case PL_UINT8:
        reduce_uint8(&loop, count_elems, reduction->op, false);
        break;
    case PL_BOOL:
        reduce_truth(&loop, count_elems, reduction->op, false);
        break;
    case PL_DTYPE_COUNT:
        break;
    }
    if (loop.stream) {
        __builtin_ia32_sfence();
    }
}

static void vector_copy(void *dest, const void *source, size_t bytes, enum pl_kernel_store store)
{
    char *to = dest;
    const char *from = source;
    size_t at = 0;

    if (store == PL_KERNEL_STORE_STREAM) {
        at = (VECTOR_BYTES - (uintptr_t)to % VECTOR_BYTES) % VECTOR_BYTES;
        at = at < bytes ? at : bytes;
        memcpy(to, from, at);
        for (; bytes - at >= UNROLL * VECTOR_BYTES; at += UNROLL * VECTOR_BYTES) {
            uint8_vector part[UNROLL];

            _Pragma("GCC unroll 4") for (uint32_t v = 0; v < UNROLL; v++)
            {
                part[v] = *(const uint8_vector *)(from + at + v * VECTOR_BYTES);
            }
            _Pragma("GCC unroll 4") for (uint32_t v = 0; v < UNROLL; v++)
            {
                vector_stream(to + at + v * VECTOR_BYTES, &part[v]);
            }
        }
        __builtin_ia32_sfence();
    } else if (store == PL_KERNEL_STORE_MIGRATE) {
        for (; bytes - at >= UNROLL * VECTOR_BYTES; at += UNROLL * VECTOR_BYTES) {
            for (size_t line = 0; line < UNROLL * VECTOR_BYTES; line += LINE_BYTES) {
                __builtin_prefetch(to + at + AHEAD_BYTES + line, 1, 3);
            }
            for (uint32_t v = 0; v < UNROLL; v++) {
                *(uint8_vector *)(to + at + v * VECTOR_BYTES) = *(const uint8_vector *)(from + at + v * VECTOR_BYTES);
            }
        }
    }
    if (bytes > at) {
        memcpy(to + at, from + at, bytes - at);
    }
}

static void vector_narrow(enum pl_dtype dest_dtype, uint16_t *dest, const float *source, size_t count_elems)
{
    const size_t lanes = VECTOR_BYTES / sizeof(float);
    size_t at = 0;

    for (; count_elems - at >= lanes; at += lanes) {
        float_vector value = load_float32((const char *)(source + at));

        *(half_vector *)(dest + at) = dest_dtype == PL_FLOAT16 ? store_half(value) : store_brain(value);
    }
    pl_kernel_plain.narrow(dest_dtype, dest + at, source + at, count_elems - at);
}

static void vector_widen(enum pl_dtype source_dtype, float *dest, const uint16_t *source, size_t count_elems)
{
    const size_t lanes = VECTOR_BYTES / sizeof(float);
    size_t at = 0;

    for (; count_elems - at >= lanes; at += lanes) {
        const char *from = (const char *)(source + at);

        *(float_vector *)(dest + at) = source_dtype == PL_FLOAT16 ? load_half(from) : load_brain(from);
    }
    pl_kernel_plain.widen(source_dtype, dest + at, source + at, count_elems - at);
}

const struct pl_kernel VECTOR_KERNEL = {
    .name = VECTOR_NAME,
    .reduce = vector_reduce,
    .copy = vector_copy,
    .narrow = vector_narrow,
    .widen = vector_widen,
};
