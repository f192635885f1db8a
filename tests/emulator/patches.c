/* Patches instructions that trapped into jumps to stubs, which save all registers and call the emulator. */
#include "emulator.h"

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { JUMP = 0xE9, JUMP_BYTES = 5, INVALID = 0x06, LONGEST_INSTRUCTION = 15 };
enum { SYNC_CORE = 1 << 5, REGISTER_SYNC_CORE = 1 << 6 }; /* membarrier */

typedef struct {
    uint8_t code[64];
    const void *entry; /* what the code calls, relative to its own address */
    uint64_t location;
    uint8_t instruction[LONGEST_INSTRUCTION + 1];
    uint8_t unused[32];
} Stub;

enum { CHUNK_BYTES = 1 << 16, STUBS = CHUNK_BYTES / sizeof(Stub), CHUNKS = 4096 };

static Stub *chunks[CHUNKS];
static int num_chunks, used[CHUNKS];
static bool lock;

/* Saves the registers in the order of gregs, and the vector registers as a signal frame does; RAX holds the stub. */
void stub_entry(void) __attribute__((visibility("hidden")));
__asm__(
    ".pushsection .text\n.hidden stub_entry\n.type stub_entry, @function\nstub_entry:\n"
    "pushfq\n push %rbp\n mov %rsp, %rbp\n sub $192, %rsp\n"
    "mov %r8, 0(%rsp)\n mov %r9, 8(%rsp)\n mov %r10, 16(%rsp)\n mov %r11, 24(%rsp)\n"
    "mov %r12, 32(%rsp)\n mov %r13, 40(%rsp)\n mov %r14, 48(%rsp)\n mov %r15, 56(%rsp)\n"
    "mov %rdi, 64(%rsp)\n mov %rsi, 72(%rsp)\n mov %rbx, 88(%rsp)\n mov %rdx, 96(%rsp)\n mov %rcx, 112(%rsp)\n"
    "mov 0(%rbp), %rcx\n mov %rcx, 80(%rsp)\n"    /* RBP */
    "mov 24(%rbp), %rcx\n mov %rcx, 104(%rsp)\n"  /* RAX */
    "lea 160(%rbp), %rcx\n mov %rcx, 120(%rsp)\n" /* RSP: above RBP, flags, return address, RAX, red zone */
    "mov %rsp, %r12\n mov %rax, %rdi\n mov %rsp, %rsi\n"
    "sub $4096, %rsp\n and $-64, %rsp\n mov %rsp, %rbx\n"
    "xor %eax, %eax\n"
    "mov %rax, 512(%rbx)\n mov %rax, 520(%rbx)\n mov %rax, 528(%rbx)\n mov %rax, 536(%rbx)\n"
    "mov %rax, 544(%rbx)\n mov %rax, 552(%rbx)\n mov %rax, 560(%rbx)\n mov %rax, 568(%rbx)\n"
    "mov $0xE6, %eax\n xor %edx, %edx\n xsave64 (%rbx)\n"
    "mov %rbx, %rdx\n call run_stub\n"
    "mov $0xE6, %eax\n xor %edx, %edx\n xrstor64 (%rbx)\n"
    "mov 80(%r12), %rcx\n mov %rcx, 0(%rbp)\n mov 104(%r12), %rcx\n mov %rcx, 24(%rbp)\n"
    "mov 0(%r12), %r8\n mov 8(%r12), %r9\n mov 16(%r12), %r10\n mov 24(%r12), %r11\n"
    "mov 40(%r12), %r13\n mov 48(%r12), %r14\n mov 56(%r12), %r15\n"
    "mov 64(%r12), %rdi\n mov 72(%r12), %rsi\n mov 88(%r12), %rbx\n mov 96(%r12), %rdx\n mov 112(%r12), %rcx\n"
    "mov 32(%r12), %r12\n"
    "leave\n popfq\n ret\n.popsection\n");

__attribute__((visibility("hidden"), used)) void run_stub(const Stub *stub, greg_t *general, uint8_t *xsave) {
    Registers registers = registers_of(general, xsave);
    Instruction instruction;
    if (!decode(stub->instruction, stub->location, &registers, &instruction) ||
        !run(&instruction, stub->location, &registers))
        fail("an instruction that was known before is not");
}

static bool is_near(const void *a, const void *b) {
    ptrdiff_t distance = (const uint8_t *)a - (const uint8_t *)b;
    return distance < 0x7FF00000 && distance > -0x7FF00000;
}

static void *map(const void *address, int flags) {
    int access = PROT_READ | PROT_WRITE | PROT_EXEC;
    long result = raw_syscall(
        SYS_mmap, (long)address, CHUNK_BYTES, access, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return result < 0 && result > -4096 ? NULL : (void *)result;
}

static Stub *new_stub(const uint8_t *location) {
    for (int i = num_chunks - 1; i >= 0; i--)
        if (used[i] < (int)STUBS && is_near(chunks[i], location))
            return &chunks[i][used[i]++];
    Stub *chunk = num_chunks < CHUNKS ? map(NULL, 0) : NULL;
    const uintptr_t step = 1 << 24, start = (uintptr_t)location & -step;
    for (uintptr_t i = 1; chunk && !is_near(chunk, location) && i < 120; i++) {
        raw_syscall(SYS_munmap, (long)chunk, CHUNK_BYTES, 0, 0, 0, 0);
        chunk = map((void *)(start - i * step), MAP_FIXED_NOREPLACE);
        chunk = chunk ? chunk : map((void *)(start + i * step), MAP_FIXED_NOREPLACE);
        chunk = chunk ? chunk : map(NULL, 0);
    }
    if (!chunk || !is_near(chunk, location))
        return NULL;
    chunks[num_chunks] = chunk;
    used[num_chunks++] = 1;
    return chunk;
}

static void write_distance(uint8_t *field, const uint8_t *target) {
    int32_t distance = (int32_t)(target - (field + 4));
    memcpy(field, &distance, sizeof distance);
}

static void write_stub(Stub *stub, const uint8_t *location, int length) {
    static const uint8_t code[] = {
        0x48, 0x8D, 0x64, 0x24, 0x80,                   /* lea -128(%rsp), %rsp: the red zone */
        0x50,                                           /* push %rax */
        0x48, 0x8D, 0x05, 0,    0,    0,    0,          /* lea stub(%rip), %rax */
        0xFF, 0x15, 0,    0,    0,    0,                /* call *entry(%rip) */
        0x58,                                           /* pop %rax */
        0x48, 0x8D, 0xA4, 0x24, 0x80, 0,    0,    0,    /* lea 128(%rsp), %rsp */
        JUMP, 0,    0,    0,    0,                      /* jmp to the next instruction */
    };
    memcpy(stub->code, code, sizeof code);
    write_distance(stub->code + 9, stub->code);
    write_distance(stub->code + 15, (uint8_t *)&stub->entry);
    write_distance(stub->code + 29, location + length);
    stub->entry = (const void *)stub_entry;
    stub->location = (uint64_t)location;
    memcpy(stub->instruction, location, length);
}

bool is_patched(const uint8_t *location) {
    uint8_t first = __atomic_load_n(location, __ATOMIC_ACQUIRE);
    return first == JUMP || first == INVALID;
}

static void synchronize(void) { raw_syscall(SYS_membarrier, SYNC_CORE, 0, 0, 0, 0, 0); }

void lock_code(void) {
    while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE))
        raw_syscall(SYS_sched_yield, 0, 0, 0, 0, 0, 0);
}

void unlock_code(void) { __atomic_clear(&lock, __ATOMIC_RELEASE); }

void patch(uint8_t *location, int length) {
    lock_code();
    uintptr_t page = (uintptr_t)location & -4096ul, end = ((uintptr_t)location + length + 4095) & -4096ul;
    Stub *stub = is_patched(location) || length < JUMP_BYTES ? NULL : new_stub(location);
    int access = PROT_READ | PROT_WRITE | PROT_EXEC;
    if (stub && !raw_syscall(SYS_membarrier, REGISTER_SYNC_CORE, 0, 0, 0, 0, 0) &&
        !raw_syscall(SYS_mprotect, (long)page, (long)(end - page), access, 0, 0, 0)) {
        write_stub(stub, location, length);
        __atomic_store_n(location, INVALID, __ATOMIC_RELEASE); /* raises SIGILL in other threads, which try again */
        synchronize();
        write_distance(location + 1, stub->code);
        synchronize();
        __atomic_store_n(location, JUMP, __ATOMIC_RELEASE);
    }
    unlock_code();
}
