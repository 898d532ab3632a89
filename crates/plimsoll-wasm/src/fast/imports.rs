//! What a guest of the columnar interface imports: the reason of a status, and the texts of codes.

use plimsoll_plugin::Table;
use wasmtime::{Caller, Linker, Memory, Result as Wasm, StoreLimits, Trap};

/// Longest text that a guest can give: reasons, manifests, charges; in bytes.
pub(super) const MAX_TEXT: usize = 64 * 1024;
const PLIMSOLL: &str = "plimsoll";

/// What host functions see.
#[derive(Debug)]
pub(super) struct State {
    pub reason: String,
    /// The texts of codes, while a call reads nodes.
    pub table: Table,
    pub limits: StoreLimits,
}

/// The functions that a guest imports.
pub(super) fn link(linker: &mut Linker<State>) -> Wasm<()> {
    linker.func_wrap(PLIMSOLL, "reason", |mut c: Caller<'_, State>, at: u32, len: u32| -> Wasm<()> {
        let bytes = read(&mut c, at, len)?;
        c.data_mut().reason = String::from_utf8_lossy(&bytes).into_owned();
        Ok(())
    })?;
    linker.func_wrap(
        PLIMSOLL,
        "text",
        |mut c: Caller<'_, State>, code: u32, at: u32, room: u32| -> Wasm<u32> {
            let Some(text) = c.data().table.text(code).map(str::to_owned) else { return Ok(u32::MAX) };
            charge(&mut c, text.len())?;
            let len = u32::try_from(text.len()).unwrap_or(u32::MAX - 1);
            if len <= room {
                let memory = memory(&mut c)?;
                let written = memory.write(&mut c, at as usize, text.as_bytes());
                written.map_err(|_| wasmtime::Error::msg("out of bounds memory access"))?;
            }
            Ok(len)
        },
    )?;
    Ok(())
}

fn memory(c: &mut Caller<'_, State>) -> Wasm<Memory> {
    let found = c.get_export("memory").and_then(wasmtime::Extern::into_memory);
    found.ok_or_else(|| wasmtime::Error::msg("guest doesn't export memory[memory]"))
}

/// Host functions cost what they do, so that a guest that calls nothing else ends as well.
fn charge(c: &mut Caller<'_, State>, bytes: usize) -> Wasm<()> {
    let Some(left) = c.get_fuel()?.checked_sub(200 + bytes as u64) else {
        return Err(Trap::OutOfFuel.into());
    };
    c.set_fuel(left)
}

/// What lies in the memory of the guest, cut at the longest text.
fn read(c: &mut Caller<'_, State>, at: u32, len: u32) -> Wasm<Vec<u8>> {
    charge(c, (len as usize).min(MAX_TEXT))?;
    let memory = memory(c)?;
    let bytes = memory.data(&c).get(at as usize..).and_then(|rest| rest.get(..len as usize));
    let bytes = bytes.ok_or_else(|| wasmtime::Error::msg("out of bounds memory access"))?;
    Ok(bytes.get(..MAX_TEXT).unwrap_or(bytes).to_vec())
}
