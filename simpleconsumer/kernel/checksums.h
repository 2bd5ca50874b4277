/* CRC-32 and CRC-32C by the processor's instructions where it has them, else by tables of eight bytes at a time.

   Both have reflected polynomials, so one function folds both: with carry-less multiplications it replaces the first
   bytes of a buffer by a shorter string that has the same remainder.

   Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define HAS_FOLDING 1
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__) && defined(__GNUC__)
#define HAS_ARM_CRC 1
#include <arm_acle.h>
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

typedef struct {
    uint32_t table[8][256];
    uint32_t polynomial; /* reflected */
    /* x^n modulo the polynomial, reflected and shifted by one: n = 4*128+32, 4*128-32, 128+32, 128-32, 64; then the
       polynomial itself with its 33rd bit, and the quotient of x^64 by it. */
    uint64_t fold[7];
} Checksum;

static Checksum crc32_of = {
    .polynomial = 0xEDB88320u,
    .fold = {0x154442bd4, 0x1c6e41596, 0x1751997d0, 0x0ccaa009e, 0x163cd6124, 0x1db710641, 0x1f7011641},
};
static Checksum crc32c_of = {
    .polynomial = 0x82F63B78u,
    .fold = {0x0740eef02, 0x09e4addf8, 0x0f20c0dfe, 0x14cd00bd6, 0x0dd45aab8, 0x105ec76f1, 0x0dea713f1},
};
static int has_instructions = 0;

static void prepare_table(Checksum *kind) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t rest = byte;
        for (int bit = 0; bit < 8; bit++) rest = rest & 1 ? (rest >> 1) ^ kind->polynomial : rest >> 1;
        kind->table[0][byte] = rest;
    }
    for (int byte = 0; byte < 256; byte++)
        for (int row = 1; row < 8; row++) {
            uint32_t before = kind->table[row - 1][byte];
            kind->table[row][byte] = (before >> 8) ^ kind->table[0][before & 255];
        }
}

/* Called once, when the module is loaded. */
static void prepare_checksums(void) {
    prepare_table(&crc32_of);
    prepare_table(&crc32c_of);
#if defined(HAS_FOLDING)
    has_instructions = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#elif defined(HAS_ARM_CRC)
    has_instructions = (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#endif
}

static uint32_t by_table(const Checksum *kind, uint32_t state, const uint8_t *at, size_t left) {
    const uint32_t(*table)[256] = kind->table;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; left >= 8; at += 8, left -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word ^= state;
        state = table[7][word & 255] ^ table[6][word >> 8 & 255] ^ table[5][word >> 16 & 255] ^
                table[4][word >> 24 & 255] ^ table[3][word >> 32 & 255] ^ table[2][word >> 40 & 255] ^
                table[1][word >> 48 & 255] ^ table[0][word >> 56];
    }
#endif
    for (; left; left--) state = (state >> 8) ^ table[0][(state ^ *at++) & 255];
    return state;
}

#if defined(HAS_FOLDING)
#define FOLDED(value, by, next)                                                                        \
    _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(value, by, 0x00), _mm_clmulepi64_si128(value, by, 0x11)), next)
#define LOADED(at) _mm_loadu_si128((const __m128i *)(at))

/* The state after `size` bytes; `size` is a multiple of 16, and 64 or more. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t by_folding(
    const Checksum *kind, uint32_t state, const uint8_t *at, size_t size) {
    const uint64_t *fold = kind->fold;
    const __m128i by_512 = _mm_set_epi64x((long long)fold[1], (long long)fold[0]);
    const __m128i by_128 = _mm_set_epi64x((long long)fold[3], (long long)fold[2]);
    const __m128i by_64 = _mm_set_epi64x(0, (long long)fold[4]);
    const __m128i reduce = _mm_set_epi64x((long long)fold[6], (long long)fold[5]);
    const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i a = _mm_xor_si128(LOADED(at), _mm_cvtsi32_si128((int)state));
    __m128i b = LOADED(at + 16), c = LOADED(at + 32), d = LOADED(at + 48);
    for (at += 64, size -= 64; size >= 64; at += 64, size -= 64) {
        a = FOLDED(a, by_512, LOADED(at));
        b = FOLDED(b, by_512, LOADED(at + 16));
        c = FOLDED(c, by_512, LOADED(at + 32));
        d = FOLDED(d, by_512, LOADED(at + 48));
    }
    a = FOLDED(a, by_128, b);
    a = FOLDED(a, by_128, c);
    a = FOLDED(a, by_128, d);
    for (; size >= 16; at += 16, size -= 16) a = FOLDED(a, by_128, LOADED(at));
    /* 128 bits to 64, and these to 32 by Barrett's reduction. */
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_128, 0x10));
    a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low_words), by_64, 0x00));
    b = _mm_clmulepi64_si128(_mm_and_si128(a, low_words), reduce, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, low_words), reduce, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
}
#endif

#if defined(HAS_ARM_CRC)
#if defined(__clang__)
#define WITH_CRC __attribute__((target("crc")))
#else
#define WITH_CRC __attribute__((target("+crc")))
#endif
WITH_CRC static uint32_t by_instruction(const Checksum *kind, uint32_t state, const uint8_t *at, size_t left) {
    uint64_t word;
    if (kind == &crc32c_of) {
        for (; left >= 8; at += 8, left -= 8) {
            memcpy(&word, at, 8);
            state = __crc32cd(state, word);
        }
        for (; left; left--) state = __crc32cb(state, *at++);
    } else {
        for (; left >= 8; at += 8, left -= 8) {
            memcpy(&word, at, 8);
            state = __crc32d(state, word);
        }
        for (; left; left--) state = __crc32b(state, *at++);
    }
    return state;
}
#endif

/* The checksum of a buffer that follows on bytes with the checksum `before` (0 for none). */
static inline uint32_t checksum(const Checksum *kind, const uint8_t *at, size_t size, uint32_t before) {
    uint32_t state = ~before;
#if defined(HAS_FOLDING)
    if (has_instructions && size >= 64) {
        size_t folded = size & ~(size_t)15;
        state = by_folding(kind, state, at, folded);
        at += folded;
        size -= folded;
    }
#elif defined(HAS_ARM_CRC)
    if (has_instructions) return ~by_instruction(kind, state, at, size);
#endif
    return ~by_table(kind, state, at, size);
}

static uint32_t crc32_checksum(const uint8_t *at, size_t size, uint32_t before) {
    return checksum(&crc32_of, at, size, before);
}

static uint32_t crc32c_checksum(const uint8_t *at, size_t size, uint32_t before) {
    return checksum(&crc32c_of, at, size, before);
}
