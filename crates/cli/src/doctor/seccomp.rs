//! A seccomp filter that stops the traced program where it opens a file or executes another program, and nowhere else.

use std::io::{Error, Result};

/// The system calls to stop at.
#[cfg(target_arch = "x86_64")]
const SEEN: [libc::c_long; 5] =
    [libc::SYS_open, libc::SYS_openat, libc::SYS_openat2, libc::SYS_execve, libc::SYS_execveat];
#[cfg(not(target_arch = "x86_64"))]
const SEEN: [libc::c_long; 4] = [libc::SYS_openat, libc::SYS_openat2, libc::SYS_execve, libc::SYS_execveat];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

/// Offsets in `struct seccomp_data` of the system call number and the architecture.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const fn instruction(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// The program of the filter. Its last instruction stops at the call; the instruction before it allows the call.
fn program() -> [libc::sock_filter; 5 + SEEN.len() + 1] {
    let seen = SEEN.len() as u8;
    let mut program = [instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0); 5 + SEEN.len() + 1];
    program[0] = instruction(LOAD, ARCHITECTURE_AT, 0, 0);
    // Another architecture (a 32-bit program) has other numbers.
    program[1] = instruction(JUMP_EQUAL, ARCHITECTURE, 1, 0);
    program[2] = instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    program[3] = instruction(LOAD, NUMBER_AT, 0, 0);
    for (nth, number) in SEEN.iter().enumerate() {
        let to_the_end = seen - nth as u8;
        program[4 + nth] = instruction(JUMP_EQUAL, *number as u32, to_the_end, 0);
    }
    program[5 + SEEN.len()] = instruction(RETURN, libc::SECCOMP_RET_TRACE, 0, 0);
    program
}

/// Installs the filter in this thread and everything that it starts. Calls only async-signal-safe functions.
///
/// # Errors
/// The error of the system call.
pub fn install() -> Result<()> {
    let mut program = program();
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the filter and its program live during the call, which copies them.
    unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) != 0
        {
            return Err(Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The filter's answer to a call.
    fn answer(architecture: u32, number: u32) -> u32 {
        let program = program();
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            match step.code {
                LOAD => loaded = if step.k == NUMBER_AT { number } else { architecture },
                JUMP_EQUAL => at += usize::from(if loaded == step.k { step.jt } else { step.jf }),
                _ => return step.k,
            }
        }
    }

    #[test]
    fn filter_traces_only_open_and_exec_system_calls() {
        for number in SEEN {
            assert_eq!(answer(ARCHITECTURE, number as u32), libc::SECCOMP_RET_TRACE);
            assert_eq!(answer(0x4000_0003, number as u32), libc::SECCOMP_RET_ALLOW, "32 bits");
        }
        for number in [libc::SYS_read, libc::SYS_write, libc::SYS_fcntl, libc::SYS_exit_group] {
            assert_eq!(answer(ARCHITECTURE, number as u32), libc::SECCOMP_RET_ALLOW);
        }
    }
}
