/* AMX and AVX-512 BF16 in user space: state of a trapped instruction. */
#pragma once
#define _GNU_SOURCE

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

typedef struct {
    int length;                      /* bytes */
    bool evex;                       /* else VEX with three bytes */
    int map, prefix, w, vector_size; /* map and prefix of the opcode, W bit, 16 << size bytes */
    int opcode, reg, vvvv, rm;       /* register numbers */
    bool memory;                     /* whether rm is an address */
    uint64_t base, stride;           /* address without displacement; SIB index << scale */
    int64_t displacement;
    bool short_displacement; /* disp8, which EVEX multiplies by the operand's size */
    bool broadcast, zeroing;
    int mask; /* opmask register, 0 for none */
} Instruction;

typedef struct {
    greg_t *general; /* indexed by REG_RAX, ... */
    uint8_t *xsave;  /* XSAVE area, standard format */
} Registers;

enum { NO_PREFIX, PREFIX_66, PREFIX_F3, PREFIX_F2 };

void find_xsave_offsets(void);
Registers registers_of(greg_t *general, uint8_t *xsave);
/* The instruction `code` as if it were at `location`. */
bool decode(const uint8_t *code, uint64_t location, const Registers *registers, Instruction *result);
uint64_t address_of(const Instruction *instruction, int operand_bytes);
uint64_t *general_register(const Registers *registers, int number);
__m512i read_vector(const Registers *registers, int number);
void write_vector(const Registers *registers, int number, __m512i value);
uint64_t read_mask(const Registers *registers, int number);

/* Both return false for an instruction that is not emulated. */
bool run_tile_instruction(const Instruction *instruction, const Registers *registers);
bool run_vector_instruction(const Instruction *instruction, const Registers *registers);

/* Emulates an instruction, and moves on; false if it is not known. */
bool run(const Instruction *instruction, uint64_t location, const Registers *registers);

/* Replaces an instruction by a jump to the emulator, where possible: a signal takes 8 us. */
void patch(uint8_t *location, int length);
bool is_patched(const uint8_t *location);
void lock_code(void);
void unlock_code(void);

long raw_syscall(long number, long a, long b, long c, long d, long e, long f);
_Noreturn void fail(const char *problem);
