/* Pretends, in every process that preloads it, that the processor has AMX, AVX-512 BF16 and FP16, and AVX-VNNI; or that
 * it is another one with fewer instruction sets. The variable EMULATED_PROCESSOR describes it: vendor, signature (family,
 * model and stepping, as CPUID returns them) and the sets to hide, by the beginnings of their names in /proc/cpuinfo, as
 * in "AuthenticAMD 0xa20f10 avx512 amx".
 *
 * CPUID faults (arch_prctl), and the handler of SIGSEGV answers it; instructions that the processor lacks raise SIGILL,
 * and its handler emulates them. An instruction that the handler does not know ends the process. */
#include "emulator.h"

#include <cpuid.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARCH_SET_CPUID = 0x1012, ARCH_GET_XCOMP_SUPP = 0x1021, ARCH_GET_XCOMP_PERM, ARCH_REQ_XCOMP_PERM };
enum { TILE_DATA = 18, AMX_STATE = 3 << 17, ANY_AVX512_STATE = 0xE7 };
enum { FLUSH_DENORMALS = 0x9FC0 }; /* MXCSR: denormals are zeros, round to nearest, no exceptions */

enum { EAX, EBX, ECX, EDX };

static const struct {
    const char *name;
    unsigned leaf, subleaf, where, bit;
} SETS[] = {
    {"avx512f", 7, 0, EBX, 16},           {"avx512dq", 7, 0, EBX, 17},        {"avx512ifma", 7, 0, EBX, 21},
    {"avx512pf", 7, 0, EBX, 26},          {"avx512er", 7, 0, EBX, 27},        {"avx512cd", 7, 0, EBX, 28},
    {"avx512bw", 7, 0, EBX, 30},          {"avx512vl", 7, 0, EBX, 31},        {"avx512vbmi", 7, 0, ECX, 1},
    {"avx512_vbmi2", 7, 0, ECX, 6},       {"avx512_vnni", 7, 0, ECX, 11},     {"avx512_bitalg", 7, 0, ECX, 12},
    {"avx512_vpopcntdq", 7, 0, ECX, 14},  {"avx512_4vnniw", 7, 0, EDX, 2},    {"avx512_4fmaps", 7, 0, EDX, 3},
    {"avx512_vp2intersect", 7, 0, EDX, 8},{"amx_bf16", 7, 0, EDX, 22},        {"avx512_fp16", 7, 0, EDX, 23},
    {"amx_tile", 7, 0, EDX, 24},          {"amx_int8", 7, 0, EDX, 25},        {"avx_vnni", 7, 1, EAX, 4},
    {"avx512_bf16", 7, 1, EAX, 5},        {"amx_fp16", 7, 1, EAX, 21},        {"avx_ifma", 7, 1, EAX, 23},
    {"avx_vnni_int8", 7, 1, EDX, 4},      {"avx_ne_convert", 7, 1, EDX, 5},   {"amx_complex", 7, 1, EDX, 8},
    {"avx_vnni_int16", 7, 1, EDX, 10},    {"avx10", 7, 1, EDX, 19},
};

enum { INTEL_CACHES = 4, AMD_LEAVES = 0x80000000, AMD_FEATURES, AMD_CACHES = 0x8000001D }; /* leaves */
enum { TOPOLOGY_EXTENSIONS = 1 << 22 };

static const char *hidden; /* NULL: sets are added, none is hidden */
static char vendor[13];
static unsigned signature, cache_leaf; /* which of the two, of one format, this processor has */

static struct sigaction programs[NSIG]; /* what the program wants to be done with SIGSEGV and SIGILL */
static int (*real_sigaction)(int, const struct sigaction *, struct sigaction *);

long raw_syscall(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static long allow_cpuid(bool allowed) { return raw_syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed, 0, 0, 0, 0); }

static void say(const char *text) {
    raw_syscall(SYS_write, 2, (long)text, (long)strlen(text), 0, 0, 0);
}

_Noreturn void fail(const char *problem) {
    say("emulated processor: ");
    say(problem);
    say("\n");
    abort();
}

static void read_cpuid(unsigned leaf, unsigned subleaf, unsigned *values) {
    allow_cpuid(true);
    __cpuid_count(leaf, subleaf, values[EAX], values[EBX], values[ECX], values[EDX]);
    allow_cpuid(false);
}

static bool is_hidden(const char *name) {
    for (const char *word = hidden; *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        if (length && !strncmp(name, word, length))
            return true;
        word += length;
    }
    return false;
}

static void hide(unsigned leaf, unsigned subleaf, unsigned *values) {
    if (leaf == 0 || leaf == AMD_LEAVES) {
        values[EAX] = leaf == 0 || values[EAX] > AMD_CACHES ? values[EAX] : AMD_CACHES;
        memcpy(&values[EBX], vendor, 4), memcpy(&values[EDX], vendor + 4, 4), memcpy(&values[ECX], vendor + 8, 4);
    } else if (leaf == 1) {
        values[EAX] = signature;
    } else if (leaf == AMD_FEATURES) {
        values[ECX] |= TOPOLOGY_EXTENSIONS; /* of AMD: that it has AMD_CACHES */
    } else if (leaf == INTEL_CACHES || leaf == AMD_CACHES) {
        read_cpuid(cache_leaf, subleaf, values);
    }
    for (size_t i = 0; i < sizeof SETS / sizeof *SETS; i++)
        if (SETS[i].leaf == leaf && SETS[i].subleaf == subleaf && is_hidden(SETS[i].name))
            values[SETS[i].where] &= ~(1u << SETS[i].bit);
}

static void add(unsigned leaf, unsigned subleaf, unsigned *values) {
    if (leaf == 0 && values[EAX] < 0x1E) {
        values[EAX] = 0x1E;
    } else if (leaf == 7 && subleaf == 0) {
        values[EAX] = values[EAX] < 1 ? 1 : values[EAX];
        values[EDX] |= 1u << 22 | 1u << 23 | 1u << 24 | 1u << 25; /* AMX-BF16, AVX512-FP16, AMX-TILE, AMX-INT8 */
    } else if (leaf == 7 && subleaf == 1) {
        values[EAX] |= 1u << 4 | 1u << 5; /* AVX-VNNI, AVX512-BF16 */
    } else if (leaf == 0x1D) {
        memset(values, 0, 4 * sizeof *values);
        if (subleaf == 0)
            values[EAX] = 1; /* palettes */
        else if (subleaf == 1) /* 8 tiles of 16 rows of 64 bytes */
            values[EAX] = 1024u << 16 | 8192, values[EBX] = 8u << 16 | 64, values[ECX] = 16;
    } else if (leaf == 0x1E) {
        memset(values, 0, 4 * sizeof *values);
        values[EBX] = subleaf ? 0 : 64u << 8 | 16; /* columns in bytes, rows */
    }
}

static void answer_cpuid(greg_t *registers) {
    unsigned leaf = (unsigned)registers[REG_RAX], subleaf = (unsigned)registers[REG_RCX], values[4];
    read_cpuid(leaf, subleaf, values);
    (hidden ? hide : add)(leaf, subleaf, values);
    registers[REG_RAX] = values[EAX], registers[REG_RBX] = values[EBX];
    registers[REG_RCX] = values[ECX], registers[REG_RDX] = values[EDX];
    registers[REG_RIP] += 2;
}

/* What would have happened without the emulator. */
static void pass_on(int signal, siginfo_t *information, void *context) {
    const struct sigaction *program = &programs[signal];
    if (program->sa_flags & SA_SIGINFO)
        program->sa_sigaction(signal, information, context);
    else if (program->sa_handler != SIG_DFL && program->sa_handler != SIG_IGN)
        program->sa_handler(signal);
    else if (program->sa_handler == SIG_DFL || information->si_code > 0) {
        real_sigaction(signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
        if (information->si_code <= 0) /* sent, not caused by an instruction that now runs again */
            raise(signal);
    }
}

static void on_segmentation_fault(int signal, siginfo_t *information, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *instruction = (uint8_t *)registers[REG_RIP];
    if (information->si_code == SI_KERNEL && instruction[0] == 0x0F && instruction[1] == 0xA2)
        answer_cpuid(registers);
    else
        pass_on(signal, information, context);
}

bool run(const Instruction *instruction, uint64_t location, const Registers *registers) {
    _mm_setcsr(FLUSH_DENORMALS); /* both callers restore the program's */
    if (!run_tile_instruction(instruction, registers) && !run_vector_instruction(instruction, registers))
        return false;
    registers->general[REG_RIP] = (greg_t)location + instruction->length;
    return true;
}

static void on_illegal_instruction(int signal, siginfo_t *information, void *context) {
    mcontext_t *machine = &((ucontext_t *)context)->uc_mcontext;
    uint8_t *start = (uint8_t *)machine->gregs[REG_RIP];
    Registers registers = registers_of(machine->gregs, (uint8_t *)machine->fpregs);
    Instruction instruction;
    lock_code();
    bool trapped = information->si_code > 0, patched = trapped && is_patched(start); /* by another thread meanwhile */
    bool known = trapped && !patched && decode(start, (uint64_t)start, &registers, &instruction);
    unlock_code();
    if (patched)
        return;
    if (known && run(&instruction, (uint64_t)start, &registers)) {
        patch(start, instruction.length);
        return;
    }
    char text[128];
    int length = snprintf(text, sizeof text, "emulated processor: unknown instruction at %p:", (const void *)start);
    for (int i = 0; i < 12; i++)
        length += snprintf(text + length, sizeof text - length, " %02x", start[i]);
    say(text), say("\n");
    pass_on(signal, information, context);
}

static bool is_ours(int signal) { return signal == SIGSEGV || (signal == SIGILL && !hidden); }

int sigaction(int signal, const struct sigaction *action, struct sigaction *old) {
    if (!is_ours(signal) || !real_sigaction) {
        real_sigaction = dlsym(RTLD_NEXT, "sigaction"); /* constructors of libraries may come before ours */
        return real_sigaction(signal, action, old);
    }
    struct sigaction before = programs[signal];
    if (action)
        programs[signal] = *action;
    if (old)
        *old = before;
    return 0;
}

sighandler_t signal(int signal, sighandler_t handler) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    return sigaction(signal, &action, &old) ? SIG_ERR : old.sa_handler;
}

/* Our signals are never blocked: the kernel ends a process whose instruction raises a blocked one. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
    sigset_t allowed;
    if (set && how != SIG_UNBLOCK) {
        allowed = *set;
        sigdelset(&allowed, SIGSEGV);
        sigdelset(&allowed, SIGILL);
        set = &allowed;
    }
    return (int)-raw_syscall(SYS_rt_sigprocmask, how, (long)set, (long)old, NSIG / 8, 0, 0);
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old) {
    int error = pthread_sigmask(how, set, old);
    errno = error ? error : errno;
    return error ? -1 : 0;
}

/* The kernel would refuse tile data, which this processor lacks. */
long syscall(long number, ...) {
    long arguments[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        arguments[i] = va_arg(list, long);
    va_end(list);
    if (!hidden && number == SYS_arch_prctl && arguments[0] == ARCH_REQ_XCOMP_PERM && arguments[1] == TILE_DATA)
        return 0;
    if (!hidden && number == SYS_arch_prctl &&
        (arguments[0] == ARCH_GET_XCOMP_SUPP || arguments[0] == ARCH_GET_XCOMP_PERM)) {
        *(uint64_t *)arguments[1] = ANY_AVX512_STATE | AMX_STATE;
        return 0;
    }
    long result = raw_syscall(
        number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

__attribute__((constructor)) static void start(void) {
    const char *description = getenv("EMULATED_PROCESSOR");
    if (description) {
        int length = 0;
        if (sscanf(description, "%12s %x %n", vendor, &signature, &length) != 2)
            fail("EMULATED_PROCESSOR is not a vendor, a signature and instruction sets");
        hidden = description + length;
        unsigned values[4];
        __cpuid_count(INTEL_CACHES, 0, values[EAX], values[EBX], values[ECX], values[EDX]);
        cache_leaf = values[EAX] ? INTEL_CACHES : AMD_CACHES;
    }
    find_xsave_offsets();
    real_sigaction = dlsym(RTLD_NEXT, "sigaction");
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = on_segmentation_fault;
    real_sigaction(SIGSEGV, &action, NULL);
    action.sa_sigaction = on_illegal_instruction;
    if (!hidden)
        real_sigaction(SIGILL, &action, NULL);
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGSEGV);
    sigaddset(&ours, SIGILL);
    pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
    if (allow_cpuid(false))
        fail("this machine cannot make CPUID fault");
}
