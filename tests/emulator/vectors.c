/* AVX-512 BF16, AVX-VNNI and moves of AVX-512 FP16, bit for bit as Intel's Software Developer's Manual, volume 2. */
#include "emulator.h"

#include <string.h>

static int vector_bytes(const Instruction *i) { return 16 << i->vector_size; }

/* One bit for each float of the vectors. */
static __mmask16 lanes_of(const Instruction *i) { return (__mmask16)((1u << vector_bytes(i) / 4) - 1); }

/* The register, memory or broadcast operand of 32-bit elements; only those of the mask are read from memory. */
static __m512i last_operand(const Instruction *i, const Registers *registers, __mmask16 mask) {
    if (!i->memory)
        return read_vector(registers, i->rm);
    const void *address = (void *)address_of(i, i->broadcast ? 4 : vector_bytes(i));
    if (!i->broadcast)
        return _mm512_maskz_loadu_epi32(mask, address);
    int32_t element = 0;
    if (mask)
        memcpy(&element, address, sizeof element);
    return _mm512_set1_epi32(element);
}

/* Rounds to nearest even; denormals to zero of the same sign, NaN to a quiet one. */
static __m256i to_bfloat16(__m512i x) {
    __m512i lowest = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
    __m512i bits = _mm512_add_epi32(x, _mm512_add_epi32(lowest, _mm512_set1_epi32(0x7FFF)));
    __m512i magnitude = _mm512_and_si512(x, _mm512_set1_epi32(0x7FFFFFFF));
    __mmask16 is_small = _mm512_cmplt_epu32_mask(magnitude, _mm512_set1_epi32(0x00800000));
    __mmask16 is_nan = _mm512_cmpgt_epu32_mask(magnitude, _mm512_set1_epi32(0x7F800000));
    bits = _mm512_mask_and_epi32(bits, is_small, x, _mm512_set1_epi32((int)0x80000000));
    bits = _mm512_mask_or_epi32(bits, is_nan, x, _mm512_set1_epi32(0x00400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
}

static void round_one(const Instruction *i, const Registers *registers) { /* VCVTNEPS2BF16 */
    __mmask16 mask = (__mmask16)read_mask(registers, i->mask) & lanes_of(i);
    __m256i old = _mm512_castsi512_si256(read_vector(registers, i->reg));
    __m256i rounded = to_bfloat16(last_operand(i, registers, mask));
    old = _mm256_maskz_mov_epi16(i->zeroing ? 0 : lanes_of(i), old);
    write_vector(registers, i->reg, _mm512_zextsi256_si512(_mm256_mask_mov_epi16(old, mask, rounded)));
}

static void round_two(const Instruction *i, const Registers *registers) { /* VCVTNE2PS2BF16 */
    int half = vector_bytes(i) / 4;
    uint16_t rounded[64];
    _mm256_storeu_si256((void *)rounded, to_bfloat16(last_operand(i, registers, lanes_of(i))));
    _mm256_storeu_si256((void *)(rounded + half), to_bfloat16(read_vector(registers, i->vvvv)));
    __mmask32 lanes = (__mmask32)((1ull << 2 * half) - 1), mask = (__mmask32)read_mask(registers, i->mask) & lanes;
    __m512i old = _mm512_maskz_mov_epi16(i->zeroing ? 0 : lanes, read_vector(registers, i->reg));
    write_vector(registers, i->reg, _mm512_mask_mov_epi16(old, mask, _mm512_loadu_si512(rounded)));
}

/* VDPBF16PS: the odd term is added first, both with a fused multiply-add, and denormals are zeros. */
static __m512i add_bfloat16_products(__m512i sum, __m512i a, __m512i b) {
    const __m512i high = _mm512_set1_epi32((int)0xFFFF0000);
    __m512 odd = _mm512_fmadd_ps(
        _mm512_castsi512_ps(_mm512_and_si512(a, high)), _mm512_castsi512_ps(_mm512_and_si512(b, high)),
        _mm512_castsi512_ps(sum));
    return _mm512_castps_si512(_mm512_fmadd_ps(
        _mm512_castsi512_ps(_mm512_slli_epi32(a, 16)), _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), odd));
}

static bool add_products(const Instruction *i, const Registers *registers) {
    __mmask16 lanes = lanes_of(i), mask = (__mmask16)read_mask(registers, i->mask) & lanes;
    __m512i old = read_vector(registers, i->reg), a = read_vector(registers, i->vvvv), sum;
    __m512i b = last_operand(i, registers, mask);
    if (i->evex)
        sum = add_bfloat16_products(old, a, b);
    else if (i->opcode == 0x50)
        sum = _mm512_dpbusd_epi32(old, a, b);
    else if (i->opcode == 0x51)
        sum = _mm512_dpbusds_epi32(old, a, b);
    else if (i->opcode == 0x52)
        sum = _mm512_dpwssd_epi32(old, a, b);
    else
        sum = _mm512_dpwssds_epi32(old, a, b);
    old = _mm512_maskz_mov_epi32(i->zeroing ? 0 : lanes, old);
    write_vector(registers, i->reg, _mm512_mask_mov_epi32(old, mask, sum));
    return true;
}

static void move_word(const Instruction *i, const Registers *registers) { /* VMOVW */
    uint16_t word = (uint16_t)_mm_extract_epi16(_mm512_castsi512_si128(read_vector(registers, i->reg)), 0);
    if (i->opcode == 0x6E) {
        word = (uint16_t)*general_register(registers, i->rm & 15);
        if (i->memory)
            memcpy(&word, (void *)address_of(i, 2), sizeof word);
        write_vector(registers, i->reg, _mm512_zextsi128_si512(_mm_cvtsi32_si128(word)));
    } else if (i->memory) {
        memcpy((void *)address_of(i, 2), &word, sizeof word);
    } else {
        *general_register(registers, i->rm) = word;
    }
}

bool run_vector_instruction(const Instruction *i, const Registers *registers) {
    if (!i->evex) {
        bool is_vnni = i->map == 2 && i->prefix == PREFIX_66 && !i->w && i->opcode >= 0x50 && i->opcode <= 0x53;
        return is_vnni && add_products(i, registers);
    }
    if (i->vector_size > 2 || (i->broadcast && !i->memory))
        return false;
    if (i->map == 2 && !i->w && i->opcode == 0x72 && i->prefix == PREFIX_F3)
        round_one(i, registers);
    else if (i->map == 2 && !i->w && i->opcode == 0x72 && i->prefix == PREFIX_F2)
        round_two(i, registers);
    else if (i->map == 2 && !i->w && i->opcode == 0x52 && i->prefix == PREFIX_F3)
        add_products(i, registers);
    else if (i->map == 5 && i->prefix == PREFIX_66 && (i->opcode == 0x6E || i->opcode == 0x7E) && !i->vector_size)
        move_word(i, registers);
    else
        return false;
    return true;
}
