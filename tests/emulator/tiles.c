/* The instructions of AMX, bit for bit as the pseudocode of Intel's Software Developer's Manual, volume 2. */
#include "emulator.h"

#include <string.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[TILES], more_reserved[8];
    uint8_t rows[TILES], last_reserved[8];
} Configuration;

static __thread Configuration configuration;
static __thread uint8_t tiles[TILES][ROWS][ROW_BYTES] __attribute__((aligned(64)));

static void configure(uint64_t address) {
    _Static_assert(sizeof configuration == 64, "as LDTILECFG reads it");
    memcpy(&configuration, (void *)address, sizeof configuration);
    if (configuration.palette > 1 || configuration.start_row)
        fail("LDTILECFG: an invalid palette or start row");
    if (!configuration.palette)
        memset(&configuration, 0, sizeof configuration);
    for (int i = 0; i < TILES; i++)
        if (configuration.rows[i] > ROWS || configuration.row_bytes[i] > ROW_BYTES)
            fail("LDTILECFG: a tile is too large");
    memset(tiles, 0, sizeof tiles);
}

static void check_configured(int tile) {
    if (!configuration.palette || tile >= TILES || !configuration.rows[tile] || !configuration.row_bytes[tile])
        fail("a tile is used that is not configured");
}

static void load(int tile, uint64_t address, uint64_t stride) {
    for (int m = 0; m < configuration.rows[tile]; m++)
        memcpy(tiles[tile][m], (void *)(address + m * stride), configuration.row_bytes[tile]);
}

static void store(int tile, uint64_t address, uint64_t stride) {
    for (int m = 0; m < configuration.rows[tile]; m++)
        memcpy((void *)(address + m * stride), tiles[tile][m], configuration.row_bytes[tile]);
}

static void check_product(int c, int a, int b) {
    check_configured(a), check_configured(b), check_configured(c);
    const Configuration *is = &configuration;
    bool distinct = a != b && a != c && b != c;
    bool whole = is->row_bytes[a] % 4 == 0 && is->row_bytes[b] % 4 == 0;
    bool fits = is->rows[c] == is->rows[a] && is->row_bytes[c] == is->row_bytes[b];
    fits = fits && is->row_bytes[a] / 4 == is->rows[b];
    if (!distinct || !whole || !fits)
        fail("a product of tiles whose shapes do not fit");
}

/* TDPBF16PS: even and odd terms are added up apart, with fused multiply-adds in ascending order; then the sum of both
 * is added to the result. Denormals are zeros, as the signal handler's MXCSR says. */
static void multiply_bfloat16(int c, int a, int b) {
    int pairs = configuration.row_bytes[a] / 4;
    __m512 b_even[ROWS], b_odd[ROWS];
    const __m512i high = _mm512_set1_epi32((int)0xFFFF0000);
    for (int k = 0; k < pairs; k++) {
        __m512i row = _mm512_load_si512(tiles[b][k]);
        b_even[k] = _mm512_castsi512_ps(_mm512_slli_epi32(row, 16));
        b_odd[k] = _mm512_castsi512_ps(_mm512_and_si512(row, high));
    }
    float a_even[ROWS][ROWS] __attribute__((aligned(64))), a_odd[ROWS][ROWS] __attribute__((aligned(64)));
    for (int m = 0; m < ROWS; m++) {
        __m512i row = _mm512_load_si512(tiles[a][m]);
        _mm512_store_si512(a_even[m], _mm512_slli_epi32(row, 16));
        _mm512_store_si512(a_odd[m], _mm512_and_si512(row, high));
    }
    enum { TOGETHER = 4 }; /* independent sums hide the latency; rows beyond the tile's are zeros and stay so */
    __mmask16 columns = (__mmask16)((1u << configuration.row_bytes[c] / 4) - 1);
    for (int start = 0; start < configuration.rows[c]; start += TOGETHER) {
        __m512 even[TOGETHER], odd[TOGETHER];
        for (int m = 0; m < TOGETHER; m++)
            even[m] = odd[m] = _mm512_setzero_ps();
        for (int k = 0; k < pairs; k++) {
#pragma GCC unroll 4
            for (int m = 0; m < TOGETHER; m++) {
                even[m] = _mm512_fmadd_ps(_mm512_set1_ps(a_even[start + m][k]), b_even[k], even[m]);
                odd[m] = _mm512_fmadd_ps(_mm512_set1_ps(a_odd[start + m][k]), b_odd[k], odd[m]);
            }
        }
        for (int m = 0; m < TOGETHER && start + m < configuration.rows[c]; m++) {
            __m512 sum = _mm512_add_ps(_mm512_load_ps(tiles[c][start + m]), _mm512_add_ps(even[m], odd[m]));
            _mm512_store_ps(tiles[c][start + m], _mm512_maskz_mov_ps(columns, sum));
        }
    }
}

/* TDPB[SU][SU]D: sums of four products modulo 2^32. VPDPBUSD multiplies unsigned by signed bytes, so for other signs a
 * factor is shifted by 128, which is then taken back. */
static void multiply_int8(int c, int a, int b, bool a_signed, bool b_signed) {
    const __m512i shift = _mm512_set1_epi8((char)0x80), half = _mm512_set1_epi8(64);
    for (int m = 0; m < configuration.rows[c]; m++) {
        __m512i sum = _mm512_load_si512(tiles[c][m]);
        for (int k = 0; k < configuration.row_bytes[a] / 4; k++) {
            int32_t four;
            memcpy(&four, tiles[a][m] + 4 * k, sizeof four);
            __m512i x = _mm512_set1_epi32(four), y = _mm512_load_si512(tiles[b][k]);
            if (!a_signed && b_signed) {
                sum = _mm512_dpbusd_epi32(sum, x, y);
            } else if (a_signed && !b_signed) {
                sum = _mm512_dpbusd_epi32(sum, y, x);
            } else if (a_signed) {
                sum = _mm512_dpbusd_epi32(sum, _mm512_xor_si512(x, shift), y);
                sum = _mm512_sub_epi32(sum, _mm512_dpbusd_epi32(_mm512_setzero_si512(), shift, y));
            } else {
                sum = _mm512_dpbusd_epi32(sum, x, _mm512_xor_si512(y, shift));
                sum = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, x, half), x, half);
            }
        }
        __mmask16 columns = (__mmask16)((1u << configuration.row_bytes[c] / 4) - 1);
        _mm512_store_si512(tiles[c][m], _mm512_maskz_mov_epi32(columns, sum));
    }
}

static bool run_configuration(const Instruction *i) {
    if (i->memory && i->reg == 0 && i->prefix == NO_PREFIX) /* LDTILECFG */
        configure(address_of(i, 1));
    else if (i->memory && i->reg == 0 && i->prefix == PREFIX_66) /* STTILECFG */
        memcpy((void *)address_of(i, 1), &configuration, sizeof configuration);
    else if (!i->memory && i->prefix == NO_PREFIX && i->reg == 0 && i->rm == 0) { /* TILERELEASE */
        memset(&configuration, 0, sizeof configuration);
        memset(tiles, 0, sizeof tiles);
    } else if (!i->memory && i->prefix == PREFIX_F2 && i->rm == 0) { /* TILEZERO */
        check_configured(i->reg);
        memset(tiles[i->reg], 0, sizeof tiles[i->reg]);
    } else
        return false;
    return true;
}

bool run_tile_instruction(const Instruction *i, const Registers *registers) {
    (void)registers;
    if (i->evex || i->map != 2 || i->w || i->vector_size)
        return false;
    if (i->opcode == 0x49)
        return run_configuration(i);
    if (i->opcode == 0x4B && i->memory && i->prefix) {
        check_configured(i->reg);
        uint64_t start = i->base + i->displacement;
        if (i->prefix == PREFIX_F3)
            store(i->reg, start, i->stride);
        else /* TILELOADD, TILELOADDT1 */
            load(i->reg, start, i->stride);
        return true;
    }
    if ((i->opcode != 0x5C || i->prefix != PREFIX_F3) && i->opcode != 0x5E)
        return false;
    if (i->memory)
        return false;
    check_product(i->reg, i->rm, i->vvvv);
    if (i->opcode == 0x5C)
        multiply_bfloat16(i->reg, i->rm, i->vvvv);
    else
        multiply_int8(
            i->reg, i->rm, i->vvvv, i->prefix == PREFIX_F2 || i->prefix == PREFIX_F3,
            i->prefix == PREFIX_F2 || i->prefix == PREFIX_66);
    return true;
}
