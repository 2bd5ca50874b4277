/* Compares checksums.h with CRCs computed bit by bit: with the processor's instructions where it has them, and without.

   test_kernel.py builds and runs it. For another architecture:
   aarch64-linux-gnu-gcc -O3 -static -I simpleconsumer/kernel tests/simpleconsumer/checksums_check.c -o check
   qemu-aarch64-static ./check; qemu-aarch64-static -cpu cortex-a57,aarch64=on ./check */

#include <stdio.h>
#include <stdlib.h>

#include "checksums.h"

static uint32_t by_bit(uint32_t polynomial, const uint8_t *at, size_t size, uint32_t before) {
    uint32_t state = ~before;
    for (; size; size--) {
        state ^= *at++;
        for (int bit = 0; bit < 8; bit++) state = state & 1 ? (state >> 1) ^ polynomial : state >> 1;
    }
    return ~state;
}

static long compared = 0;

static void compare(const uint8_t *at, size_t size, uint32_t before) {
    if (crc32_checksum(at, size, before) != by_bit(0xEDB88320u, at, size, before) ||
        crc32c_checksum(at, size, before) != by_bit(0x82F63B78u, at, size, before)) {
        printf("%zu bytes at address %zu of 64 differ after %08x\n", size, (size_t)((uintptr_t)at & 63), before);
        exit(1);
    }
    compared++;
}

static void compare_all(const uint8_t *data) {
    static const size_t sizes[] = {4095, 4096, 65535, 65536, 100001, 1000003};
    for (size_t size = 0; size <= 300; size++)
        for (size_t start = 0; start < 16; start++) compare(data + start, size, (uint32_t)(size * 2654435761u) * (start & 1));
    for (size_t each = 0; each < sizeof(sizes) / sizeof(*sizes); each++)
        for (size_t start = 0; start < 4; start++) compare(data + start, sizes[each], (uint32_t)start);
}

int main(void) {
    size_t room = 1000003 + 16;
    uint8_t *data = malloc(room);
    uint32_t random = 1;
    for (size_t at = 0; at < room; at++) data[at] = (uint8_t)((random = random * 1664525u + 1013904223u) >> 24);
    prepare_checksums();
    int had = has_instructions;
    compare_all(data);
    has_instructions = 0;
    compare_all(data);
    free(data);
    printf("%ld buffers have the right checksums, %s\n", compared,
           had ? "with and without the processor's instructions" : "without instructions, which this processor lacks");
    return 0;
}
