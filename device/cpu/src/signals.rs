//! Signal handlers that leave the program's own in place, and what a handler can read of what it interrupts.

use std::ops::Range;

/// A handler with `SA_SIGINFO`.
pub(crate) type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Installs a handler; what was there before it. `None` where the system refuses.
pub(crate) fn install(signal: i32, handler: Handler, flags: i32) -> Option<libc::sigaction> {
    // SAFETY: a zeroed sigaction has an empty mask, and the handler is a function of a library that is never
    // unloaded.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let mut previous: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = flags;
        (libc::sigaction(signal, &action, &mut previous) == 0).then_some(previous)
    }
}

/// Calls the handler that was there before, if there was one; whether there was.
///
/// # Safety
/// The other arguments are those that the kernel gave the handler that calls this.
pub(crate) unsafe fn call(
    previous: &libc::sigaction,
    signal: i32,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) -> bool {
    if previous.sa_sigaction == libc::SIG_DFL || previous.sa_sigaction == libc::SIG_IGN {
        return false;
    }
    // SAFETY: a handler that the program has installed; its flags say which of the two types it has.
    unsafe {
        if previous.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: Handler = std::mem::transmute(previous.sa_sigaction);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(i32) = std::mem::transmute(previous.sa_sigaction);
            handler(signal);
        }
    }
    true
}

/// Gives the signal back to the system.
pub(crate) fn reset(signal: i32) {
    // SAFETY: the default action, with an empty mask.
    unsafe {
        let action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use libc::{REG_ERR, REG_RIP, REG_RSP};

    pub(crate) fn counter(context: &libc::ucontext_t) -> usize {
        context.uc_mcontext.gregs[REG_RIP as usize] as usize
    }

    pub(crate) fn stack_pointer(context: &libc::ucontext_t) -> usize {
        context.uc_mcontext.gregs[REG_RSP as usize] as usize
    }

    /// The page fault's error code: 2 a write, 16 an instruction.
    pub(crate) fn access(context: &libc::ucontext_t) -> Option<&'static str> {
        match context.uc_mcontext.gregs[REG_ERR as usize] {
            code if code & 16 != 0 => Some("runs code at"),
            code if code & 2 != 0 => Some("writes"),
            _ => Some("reads"),
        }
    }

    /// The registers that may hold addresses, by name.
    pub(crate) fn registers(context: &libc::ucontext_t) -> Vec<(&'static str, u64)> {
        let names = [
            "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax",
            "rcx",
        ];
        names.into_iter().zip(context.uc_mcontext.gregs.map(|bits| bits as u64)).collect()
    }

    /// Where the function at the counter returns to, if it has no frame yet: on top of the stack.
    pub(crate) fn return_slot(context: &libc::ucontext_t) -> Result<usize, usize> {
        Err(stack_pointer(context))
    }

    /// As if the function at the counter had returned to `caller`.
    pub(crate) fn step_out(context: &mut libc::ucontext_t, caller: usize) {
        context.uc_mcontext.gregs[REG_RIP as usize] = caller as i64;
        context.uc_mcontext.gregs[REG_RSP as usize] += 8;
    }

    /// Whether [`fill`] tells of floating-point registers.
    pub(crate) const HAS_FLOATS: bool = true;
    /// Bytes below the stack pointer that a function may use which calls none; signals leave them alone.
    /// (System V ABI, AMD64, 3.2.2)
    pub(crate) const RED_ZONE: usize = 128;

    pub(crate) fn fill(context: &libc::ucontext_t, mut each: impl FnMut(u64)) {
        context.uc_mcontext.gregs[..17].iter().for_each(|bits| each(*bits as u64));
        // SAFETY: null, or the kernel's record of these registers, on the stack as long as the context.
        let Some(state) = (unsafe { context.uc_mcontext.fpregs.as_ref() }) else { return };
        for register in &state._xmm {
            let [a, b, c, d] = register.element.map(u64::from);
            each(a | b << 32);
            each(c | d << 32);
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    pub(crate) fn counter(context: &libc::ucontext_t) -> usize {
        context.uc_mcontext.pc as usize
    }

    pub(crate) fn stack_pointer(context: &libc::ucontext_t) -> usize {
        context.uc_mcontext.sp as usize
    }

    pub(crate) fn access(_: &libc::ucontext_t) -> Option<&'static str> {
        None
    }

    pub(crate) fn registers(_: &libc::ucontext_t) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    pub(crate) fn return_slot(context: &libc::ucontext_t) -> Result<usize, usize> {
        Ok(context.uc_mcontext.regs[30] as usize)
    }

    pub(crate) fn step_out(context: &mut libc::ucontext_t, caller: usize) {
        context.uc_mcontext.pc = caller as u64;
    }

    pub(crate) const HAS_FLOATS: bool = false;
    pub(crate) const RED_ZONE: usize = 0;

    pub(crate) fn fill(context: &libc::ucontext_t, mut each: impl FnMut(u64)) {
        context.uc_mcontext.regs.iter().for_each(|bits| each(*bits));
        each(context.uc_mcontext.sp);
        each(context.uc_mcontext.pc);
    }
}

pub(crate) use machine::{access, counter, registers, return_slot, stack_pointer, step_out, HAS_FLOATS};

/// More of the stack than a loop's own variables take, at -O0 too.
const STACK_WORDS: usize = 64;
/// The program counter, registers and the top of the stack up to `end`: a thread that looks as it looked
/// before, at the same instruction, has come no further.
pub(crate) fn looks(context: &libc::ucontext_t, end: usize, mut each: impl FnMut(u64)) {
    each(counter(context) as u64);
    machine::fill(context, &mut each);
    let top = stack_pointer(context).next_multiple_of(8);
    for word in (top - machine::RED_ZONE..end.min(top + 8 * STACK_WORDS)).step_by(8) {
        // SAFETY: between the stack pointer and the end of the stack that it is on; or in the zone below it,
        // under which the frame of the signal lies.
        each(unsafe { (word as *const u64).read_volatile() });
    }
}

/// Reads memory that may not be there; how many bytes it could. Allocates nothing.
pub(crate) fn peek(from: usize, to: &mut [usize]) -> usize {
    // SAFETY: the system call writes at most what `to` has room for, and answers a wild address with an
    // error.
    unsafe {
        let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: size_of_val(to) };
        let remote = libc::iovec { iov_base: from as *mut libc::c_void, iov_len: size_of_val(to) };
        let read = libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0);
        usize::try_from(read).unwrap_or(0)
    }
}

/// The segment of code that `address` is in.
pub(crate) fn text_of(address: usize) -> Range<usize> {
    of_module(address).text
}

/// How far from where it says the module is loaded whose code has `address`.
pub(crate) fn bias_of(address: usize) -> usize {
    of_module(address).bias
}

/// The writable variables of the module whose code has `address`.
pub(crate) fn data_of(address: usize) -> Range<usize> {
    of_module(address).data
}

/// The calling thread's own variables of that module, once it has touched one.
pub(crate) fn thread_locals_of(address: usize) -> Range<usize> {
    of_module(address).locals
}

#[derive(Default)]
struct LoadedModule {
    bias: usize,
    text: Range<usize>,
    data: Range<usize>,
    locals: Range<usize>,
}

/// The module whose code has `address`.
fn of_module(address: usize) -> LoadedModule {
    struct Wanted {
        address: usize,
        found: LoadedModule,
    }
    /// # Safety
    /// `info` describes a module, and `wanted` is a [`Wanted`].
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, wanted: *mut libc::c_void) -> i32 {
        // SAFETY: the dynamic linker gives a module's table, and the pointer is the one handed in below.
        let (info, wanted) = unsafe { (&*info, &mut *wanted.cast::<Wanted>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: as many headers as the dynamic linker says.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) };
        let mut found = LoadedModule { bias: info.dlpi_addr as usize, ..LoadedModule::default() };
        for header in headers {
            let start = (info.dlpi_addr + header.p_vaddr) as usize;
            let range = start..start + header.p_memsz as usize;
            match header.p_type {
                libc::PT_LOAD if header.p_flags & libc::PF_X != 0 && range.contains(&wanted.address) => {
                    found.text = range;
                }
                libc::PT_LOAD if header.p_flags & libc::PF_W != 0 => found.data = range,
                libc::PT_TLS if !info.dlpi_tls_data.is_null() => {
                    let start = info.dlpi_tls_data as usize;
                    found.locals = start..start + header.p_memsz as usize;
                }
                _ => {}
            }
        }
        if found.text.is_empty() {
            return 0;
        }
        wanted.found = found;
        1
    }
    let mut wanted = Wanted { address, found: LoadedModule::default() };
    // SAFETY: the function above and what it is for.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut wanted).cast()) };
    wanted.found
}
