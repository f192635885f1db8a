/* Runs one instruction on records from stdin and writes the results to stdout: for the test of the emulator.
 *
 * It is linked with the emulator. An instruction that the processor lacks runs by a signal once, then by its patch;
 * with "patched" as the second argument the others are emulated too. Registers are not the lowest ones and memory
 * operands have a base, a scaled index and a displacement, so that all fields of the code are decoded. */
#include "emulator.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    uint64_t mask;
    uint8_t vectors[3][64]; /* destination, first source, last source */
} Record;

__attribute__((used)) static const float relative_operand[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

/* Where the code of the cases begins and ends, in pairs. */
extern uint8_t *__start_cases[], *__stop_cases[];

/* The result is read from `vector`; MEMORY is the last source. */
#define MEMORY "64(%%r9, %%r14, 4)"
#define RUN(vector, text)                                                                                        \
    __asm__ volatile("kmovq %1, %%k3\n vmovdqu64 (%0), %%zmm1\n vmovdqu64 64(%0), %%zmm10\n"                     \
                     "vmovdqu64 128(%0), %%zmm13\n vmovdqa64 %%zmm1, %%zmm19\n vmovdqa64 %%zmm10, %%zmm30\n"     \
                     "vmovdqa64 %%zmm13, %%zmm23\n mov %0, %%r9\n mov $16, %%r14\n 1: " text                      \
                     "\n 2: vmovdqu64 " vector ", (%0)\n"                                                        \
                     ".pushsection cases, \"aw\"\n .quad 1b, 2b\n .popsection"                                  \
                     :                                                                                           \
                     : "r"(record->vectors), "r"(record->mask)                                                   \
                     : "memory", "r9", "r14", "r15", "k3", "xmm1", "xmm10", "xmm13", "xmm19", "xmm23", "xmm30")

#define CASES                                                                                                    \
    CASE("VCVTNEPS2BF16 512", EVEX, "vcvtneps2bf16 %%zmm23, %%ymm19")                                            \
    CASE("VCVTNEPS2BF16 256", EVEX, "vcvtneps2bf16 %%ymm23, %%xmm19")                                            \
    CASE("VCVTNEPS2BF16 128", EVEX, "vcvtneps2bf16 %%xmm23, %%xmm19")                                            \
    CASE("VCVTNEPS2BF16 512 merge", EVEX, "vcvtneps2bf16 %%zmm23, %%ymm19%{%%k3%}")                              \
    CASE("VCVTNEPS2BF16 256 zero memory", EVEX, "vcvtneps2bf16y " MEMORY ", %%xmm19%{%%k3%}%{z%}")               \
    CASE("VCVTNEPS2BF16 512 broadcast", EVEX, "vcvtneps2bf16 " MEMORY "%{1to16%}, %%ymm19")                      \
    CASE("VCVTNEPS2BF16 512 relative", EVEX, "vcvtneps2bf16 relative_operand(%%rip), %%ymm19")                   \
    CASE("VCVTNE2PS2BF16 512", EVEX, "vcvtne2ps2bf16 %%zmm23, %%zmm30, %%zmm19")                                 \
    CASE("VCVTNE2PS2BF16 256 merge", EVEX, "vcvtne2ps2bf16 %%ymm23, %%ymm30, %%ymm19%{%%k3%}")                   \
    CASE("VCVTNE2PS2BF16 128 zero memory", EVEX, "vcvtne2ps2bf16 " MEMORY ", %%xmm30, %%xmm19%{%%k3%}%{z%}")     \
    CASE("VDPBF16PS 512", EVEX, "vdpbf16ps %%zmm23, %%zmm30, %%zmm19")                                           \
    CASE("VDPBF16PS 256 zero", EVEX, "vdpbf16ps %%ymm23, %%ymm30, %%ymm19%{%%k3%}%{z%}")                         \
    CASE("VDPBF16PS 512 merge broadcast", EVEX, "vdpbf16ps " MEMORY "%{1to16%}, %%zmm30, %%zmm19%{%%k3%}")       \
    CASE("VPDPBUSD 256", VEX, "%{vex%} vpdpbusd %%ymm13, %%ymm10, %%ymm1")                                       \
    CASE("VPDPBUSDS 128 memory", VEX, "%{vex%} vpdpbusds " MEMORY ", %%xmm10, %%xmm1")                           \
    CASE("VPDPWSSD 256", VEX, "%{vex%} vpdpwssd %%ymm13, %%ymm10, %%ymm1")                                       \
    CASE("VPDPWSSDS 256 memory", VEX, "%{vex%} vpdpwssds " MEMORY ", %%ymm10, %%ymm1")                           \
    CASE("VMOVW", EVEX, "vmovw %%xmm23, %%r15d\n vmovw %%r15d, %%xmm19")                                         \
    CASE("VMOVW memory", EVEX, "vmovw %%xmm30, " MEMORY "\n vmovw " MEMORY ", %%xmm19")

#define EVEX "%%zmm19"
#define VEX "%%zmm1"

static int run_vectors(const char *name, Record *record) {
#define CASE(case_name, vector, text) \
    if (!strcmp(name, case_name)) {   \
        RUN(vector, text);            \
        return 1;                     \
    }
    CASES
    return 0;
}

typedef struct {
    int rows, inner_bytes, column_bytes;
} Shape;

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} Configuration;

static void run_tiles(const char *name, const Shape *shape, uint8_t *c, const uint8_t *a, const uint8_t *b) {
    Configuration wanted = {.palette = 1}, seen;
    wanted.rows[5] = wanted.rows[1] = (uint8_t)shape->rows;
    wanted.rows[7] = (uint8_t)(shape->inner_bytes / 4);
    wanted.row_bytes[1] = (uint16_t)shape->inner_bytes;
    wanted.row_bytes[5] = wanted.row_bytes[7] = (uint16_t)shape->column_bytes;
    _tile_loadconfig(&wanted);
    _tile_storeconfig(&seen);
    _tile_zero(7);
    _tile_loadd(5, c, shape->column_bytes);
    _tile_loadd(1, a, shape->inner_bytes);
    _tile_stream_loadd(7, b, shape->column_bytes);
    if (!strcmp(name, "TDPBF16PS"))
        _tile_dpbf16ps(5, 1, 7);
    else if (!strcmp(name, "TDPBSSD"))
        _tile_dpbssd(5, 1, 7);
    else if (!strcmp(name, "TDPBSUD"))
        _tile_dpbsud(5, 1, 7);
    else if (!strcmp(name, "TDPBUSD"))
        _tile_dpbusd(5, 1, 7);
    else if (!strcmp(name, "TDPBUUD"))
        _tile_dpbuud(5, 1, 7);
    _tile_stored(5, c, shape->column_bytes);
    _tile_release();
    if (memcmp(&wanted, &seen, sizeof seen))
        memset(c, 0xEE, shape->rows * shape->column_bytes);
}

/* Fills registers, flags and red zone, runs an instruction, and returns how many differ then; R15 receives a word. */
int64_t count_changes(void);
#define EACH(DO) DO(rax, 1) DO(rbx, 2) DO(rcx, 3) DO(rdx, 4) DO(rsi, 5) DO(rdi, 6) DO(rbp, 7) DO(r8, 8) DO(r9, 9) \
    DO(r10, 10) DO(r11, 11) DO(r12, 12) DO(r13, 13) DO(r14, 14)
#define FILL(name, value) "mov $" #value "234567, %" #name "\n"
#define COMPARE(name, value) "cmp $" #value "234567, %" #name "\n jne 1f\n"
__asm__(
    ".globl count_changes\ncount_changes:\n push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "mov $0x12345, %eax\n vmovd %eax, %xmm28\n kmovq %rax, %k5\n vpbroadcastd %eax, %zmm3\n vpbroadcastd %eax, %zmm31\n"
    "movq $77, -128(%rsp)\n movq $78, -8(%rsp)\n" EACH(FILL) "stc\n"
    "3: vmovw %xmm28, %r15d\n"
    "4: .pushsection cases, \"aw\"\n .quad 3b, 4b\n .popsection\n"
    "jnc 1f\n" EACH(COMPARE) "cmp $0x2345, %r15\n jne 1f\n"
    "cmpq $77, -128(%rsp)\n jne 1f\n cmpq $78, -8(%rsp)\n jne 1f\n"
    "kmovq %k5, %rax\n cmp $0x12345, %rax\n jne 1f\n"
    "vpcmpd $4, %zmm3, %zmm31, %k1\n kmovq %k1, %rax\n test %rax, %rax\n jnz 1f\n vextracti32x4 $3, %zmm31, %xmm31\n"
    "vpextrd $3, %xmm3, %ecx\n vmovd %xmm31, %eax\n cmp %eax, %ecx\n jne 1f\n xor %eax, %eax\n jmp 2f\n"
    "1: mov $1, %eax\n"
    "2: pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n vzeroupper\n ret\n");

static void patch_cases(void) {
    greg_t general[23] = {0};
    uint8_t xsave[4096] __attribute__((aligned(64))) = {0};
    Registers registers = registers_of(general, xsave);
    for (uint8_t **range = __start_cases; range < __stop_cases; range += 2) {
        Instruction instruction;
        for (uint8_t *next = range[0]; next < range[1]; next += instruction.length) {
            if (!decode(next, (uint64_t)next, &registers, &instruction))
                fail("a case of the test cannot be decoded");
            patch(next, instruction.length);
            if (!is_patched(next))
                fail("a case of the test cannot be patched");
        }
    }
}

int main(int count, char **arguments) {
    const char *name = count > 1 ? arguments[1] : "";
    if (count > 2 && !strcmp(arguments[2], "patched"))
        patch_cases();
    if (!strcmp(name, "registers")) {
        for (int i = 0; i < 3; i++)
            if (count_changes())
                return 1;
        return 0;
    }
    if (!strncmp(name, "TDP", 3)) {
        static uint8_t c[1024], a[1024], b[1024];
        Shape shape;
        while (fread(&shape, sizeof shape, 1, stdin)) {
            size_t rows = shape.rows, columns = shape.column_bytes, inner = shape.inner_bytes;
            if (!fread(c, rows * columns, 1, stdin) || !fread(a, rows * inner, 1, stdin) ||
                !fread(b, inner / 4 * columns, 1, stdin))
                return 2;
            run_tiles(name, &shape, c, a, b);
            fwrite(c, columns, rows, stdout);
        }
        return 0;
    }
    Record record;
    while (fread(&record, sizeof record, 1, stdin)) {
        if (!run_vectors(name, &record))
            return 3;
        fwrite(record.vectors[0], 64, 1, stdout);
    }
    return 0;
}
