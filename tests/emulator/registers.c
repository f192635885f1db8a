/* Decoding of VEX and EVEX instructions, and the registers in a signal frame. */
#include "emulator.h"

#include <cpuid.h>
#include <string.h>

enum { SSE = 1, AVX, OPMASK = 5, ZMM_HIGH, ZMM_16_TO_31, COMPONENTS };
enum { XMM_OFFSET = 160, HEADER = 512 };

static unsigned offsets[COMPONENTS] = {[SSE] = XMM_OFFSET}, sizes[COMPONENTS] = {[SSE] = 256};

void find_xsave_offsets(void) {
    for (unsigned i = AVX; i < COMPONENTS; i++) {
        unsigned ecx, edx;
        __cpuid_count(0xD, i, sizes[i], offsets[i], ecx, edx);
    }
}

Registers registers_of(greg_t *general, uint8_t *xsave) {
    uint64_t used;
    memcpy(&used, xsave + HEADER, sizeof used);
    for (int i = SSE; i < COMPONENTS; i++) {
        if (sizes[i] && !(used >> i & 1)) { /* in its initial state: zeros, which need not be in memory */
            memset(xsave + offsets[i], 0, sizes[i]);
            used |= 1ull << i;
        }
    }
    memcpy(xsave + HEADER, &used, sizeof used);
    return (Registers){general, xsave};
}

uint64_t *general_register(const Registers *registers, int number) {
    static const int order[] = {
        REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
        REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
    };
    return (uint64_t *)&registers->general[order[number]];
}

static void copy_vector(const Registers *registers, int number, uint8_t *value, bool write) {
    uint8_t *xsave = registers->xsave;
    uint8_t *parts[] = {
        xsave + XMM_OFFSET + 16 * number, xsave + offsets[AVX] + 16 * number, xsave + offsets[ZMM_HIGH] + 32 * number};
    const int starts[] = {0, 16, 32, 64};
    if (number >= 16) {
        uint8_t *whole = xsave + offsets[ZMM_16_TO_31] + 64 * (number - 16);
        memcpy(write ? whole : value, write ? value : whole, 64);
        return;
    }
    for (int i = 0; i < 3; i++) {
        uint8_t *part = value + starts[i];
        memcpy(write ? parts[i] : part, write ? part : parts[i], starts[i + 1] - starts[i]);
    }
}

__m512i read_vector(const Registers *registers, int number) {
    __m512i value;
    copy_vector(registers, number, (uint8_t *)&value, false);
    return value;
}

void write_vector(const Registers *registers, int number, __m512i value) {
    copy_vector(registers, number, (uint8_t *)&value, true);
}

uint64_t read_mask(const Registers *registers, int number) {
    uint64_t mask;
    memcpy(&mask, registers->xsave + offsets[OPMASK] + 8 * number, sizeof mask);
    return number ? mask : ~0ull;
}

uint64_t address_of(const Instruction *instruction, int operand_bytes) {
    bool scaled = instruction->evex && instruction->short_displacement;
    return instruction->base + instruction->stride + instruction->displacement * (scaled ? operand_bytes : 1);
}

bool decode(const uint8_t *code, uint64_t location, const Registers *registers, Instruction *result) {
    const uint8_t *next = code;
    Instruction i = {.length = 0};
    int r, x, b;
    if (next[0] != 0xC4 && next[0] != 0x62)
        return false;
    i.evex = next[0] == 0x62;
    r = next[1] & 0x80 ? 0 : 8;
    x = next[1] & 0x40 ? 0 : 8;
    b = next[1] & 0x20 ? 0 : 8;
    i.w = next[2] >> 7;
    i.vvvv = ~(next[2] >> 3) & 15;
    i.prefix = next[2] & 3;
    if (i.evex) {
        r |= next[1] & 0x10 ? 0 : 16;
        i.map = next[1] & 7;
        i.vvvv |= next[3] & 8 ? 0 : 16;
        i.vector_size = next[3] >> 5 & 3;
        i.broadcast = next[3] >> 4 & 1;
        i.zeroing = next[3] >> 7;
        i.mask = next[3] & 7;
        next += 4;
    } else {
        i.map = next[1] & 31;
        i.vector_size = next[2] >> 2 & 1;
        next += 3;
    }
    i.opcode = *next++;

    int modrm = *next++, mod = modrm >> 6, low = modrm & 7;
    i.reg = (modrm >> 3 & 7) | r;
    i.rm = low | b;
    i.memory = mod != 3;
    bool relative = false; /* to the next instruction */
    if (!i.memory) {
        i.rm |= i.evex ? x << 1 : 0;
    } else if (low == 4) {
        int sib = *next++, index = (sib >> 3 & 7) | x, base = (sib & 7) | b;
        i.stride = index == 4 ? 0 : *general_register(registers, index) << (sib >> 6);
        if ((sib & 7) == 5 && mod == 0)
            mod = 2;
        else
            i.base = *general_register(registers, base);
    } else if (low == 5 && mod == 0) {
        relative = true;
        mod = 2;
    } else {
        i.base = *general_register(registers, i.rm);
    }
    if (i.memory && mod == 1) {
        i.displacement = (int8_t)*next++;
        i.short_displacement = true;
    } else if (i.memory && mod == 2) {
        int32_t displacement;
        memcpy(&displacement, next, sizeof displacement);
        i.displacement = displacement;
        next += sizeof displacement;
    }
    i.length = (int)(next - code);
    i.base += relative ? location + i.length : 0;
    *result = i;
    return true;
}
