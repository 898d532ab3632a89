//! Writes every target's seeds into a corpus directory, for a run of cargo-fuzz:
//! `cargo run -p plimsoll-fuzz --example seeds -- DIRECTORY` makes `DIRECTORY/TARGET/seed-NNN`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(std::io::Error::other("usage: seeds DIRECTORY"));
    };
    for target in plimsoll_fuzz::TARGETS {
        let dir = dir.join(target.name);
        std::fs::create_dir_all(&dir)?;
        for (index, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{index:03}")), seed)?;
        }
    }
    Ok(())
}
