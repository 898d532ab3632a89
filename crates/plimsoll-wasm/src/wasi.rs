//! The functions of `wasi_snapshot_preview1` that TinyGo's runtime needs: no files, no network, the engine's clock and seeded
//! random numbers, so that a run can be repeated.

use wasmtime::{Caller, Linker, Result, bail};

use crate::host::{Host, memory, read};

const WASI: &str = "wasi_snapshot_preview1";
/// Longest output of one call that is kept, in bytes.
const MAX_OUT: usize = 16 * 1024;
const SUCCESS: i32 = 0;
/// `EBADF`.
const BAD_FILE: i32 = 8;

/// A guest ended itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub i32);

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "module closed with exit_code({})", self.0)
    }
}

impl std::error::Error for Exit {}

type Context<'a> = Caller<'a, Host>;

fn write(c: &mut Context<'_>, at: u32, bytes: &[u8]) -> Result<()> {
    let memory = memory(c)?;
    match memory.write(c, at as usize, bytes) {
        Ok(()) => Ok(()),
        Err(_) => bail!("out of bounds memory access"),
    }
}

fn write_number(c: &mut Context<'_>, at: u32, value: usize) -> Result<()> {
    write(c, at, &u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes())
}

/// Adds the functions.
pub(crate) fn link(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap(WASI, "fd_write", fd_write)?;
    linker.func_wrap(WASI, "proc_exit", |_: Context<'_>, code: i32| -> Result<()> {
        Err(wasmtime::Error::new(Exit(code)))
    })?;
    linker.func_wrap(
        WASI,
        "clock_time_get",
        |mut c: Context<'_>, _id: i32, _precision: i64, at: u32| -> Result<i32> {
            let now = c.data().params.now;
            write(&mut c, at, &now.to_le_bytes())?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(WASI, "random_get", |mut c: Context<'_>, at: u32, len: u32| -> Result<i32> {
        // The place is checked before it costs time.
        read(&mut c, (at, len), "random numbers")?;
        let bytes: Vec<u8> = (0..len).map(|_| c.data_mut().random.next().to_le_bytes()[0]).collect();
        write(&mut c, at, &bytes)?;
        Ok(SUCCESS)
    })?;
    linker.func_wrap(
        WASI,
        "args_sizes_get",
        |mut c: Context<'_>, count: u32, bytes: u32| -> Result<i32> {
            let args = std::sync::Arc::clone(&c.data().args);
            write_number(&mut c, count, args.len())?;
            write_number(&mut c, bytes, args.iter().map(|arg| arg.len() + 1).sum())?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(WASI, "args_get", |mut c: Context<'_>, mut list: u32, mut at: u32| -> Result<i32> {
        let args = std::sync::Arc::clone(&c.data().args);
        for arg in args.iter() {
            write(&mut c, list, &at.to_le_bytes())?;
            let bytes = [arg.as_bytes(), b"\0"].concat();
            write(&mut c, at, &bytes)?;
            list = list.wrapping_add(4);
            at = at.wrapping_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        }
        Ok(SUCCESS)
    })?;
    linker.func_wrap(
        WASI,
        "environ_sizes_get",
        |mut c: Context<'_>, count: u32, bytes: u32| -> Result<i32> {
            write_number(&mut c, count, 0)?;
            write_number(&mut c, bytes, 0)?;
            Ok(SUCCESS)
        },
    )?;
    linker.func_wrap(WASI, "environ_get", |_: Context<'_>, _list: u32, _at: u32| SUCCESS)?;
    Ok(())
}

fn fd_write(mut c: Context<'_>, file: i32, vectors: u32, count: u32, written: u32) -> Result<i32> {
    if !(1..=2).contains(&file) {
        return Ok(BAD_FILE);
    }
    let vectors = read(&mut c, (vectors, count.saturating_mul(8)), "output")?;
    let mut total = 0_u32;
    for vector in vectors.chunks_exact(8) {
        let number = |b: &[u8]| b.iter().rev().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte));
        let (at, len) = (number(&vector[..4]), number(&vector[4..]));
        let bytes = read(&mut c, (at, len), "output")?;
        let out = &mut c.data_mut().out;
        let left = MAX_OUT.saturating_sub(out.len()).min(bytes.len());
        out.extend_from_slice(&bytes[..left]);
        total = total.saturating_add(len);
    }
    write(&mut c, written, &total.to_le_bytes())?;
    Ok(SUCCESS)
}
