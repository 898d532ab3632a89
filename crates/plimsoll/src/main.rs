//! The `plimsoll` binary: parses the command line and starts what it names.

fn main() {}
