//! A guest: its module, which is checked and compiled once, and its instances (`scheduler/plugin/guest.go`).

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_state::rng::Rng;
use wasmtime::{
    Config, Engine, ExternType, Instance as Running, Linker, Module, Store, StoreLimitsBuilder, Trap, ValType,
};

use crate::host::{self, Host, Params, Results};
use crate::wasi::{self, Exit};

/// Instructions that one call may execute: a second. Guests of garbage-collected languages need most of it when they collect in
/// a call: half of it was not enough for `nodenumber` with 5,000 nodes.
pub const MAX_FUEL: u64 = 2_000_000_000;
/// Bytes of memory of an instance.
pub const MAX_MEMORY: usize = 128 << 20;
/// Elements of a table of an instance.
pub(crate) const MAX_TABLE: usize = 100_000;
/// Bytes of a module.
const MAX_MODULE: usize = 64 << 20;
const NO_RESULT: &[char] = &[];

/// The functions that a guest may export, and what they return.
const EXPORTS: [(&str, &[char]); 16] = [
    ("enqueue", NO_RESULT),
    ("prefilter", &['i']),
    ("addpod", &['i']),
    ("removepod", &['i']),
    ("filter", &['i']),
    ("postfilter", &['l']),
    ("prescore", &['i']),
    ("score", &['l']),
    ("normalizescore", &['i']),
    ("reserve", &['i']),
    ("unreserve", NO_RESULT),
    ("permit", &['l']),
    ("prebind", &['i']),
    ("bind", &['i']),
    ("postbind", NO_RESULT),
    ("_start", NO_RESULT),
];

/// What a plugin's arguments say about its guest.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Name of the plugin.
    pub name: Arc<str>,
    /// `guestConfig`.
    pub config: Arc<str>,
    /// `logSeverity`.
    pub severity: i32,
    /// `args`: the arguments that the guest's main function sees.
    pub args: Arc<[String]>,
}

/// A guest that can be instantiated.
pub struct Guest {
    engine: Engine,
    module: Module,
    linker: Linker<Host>,
    exports: BTreeSet<&'static str>,
    imports: BTreeSet<String>,
    settings: Settings,
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Guest({}, exports {:?})", self.settings.name, self.exports)
    }
}

impl Guest {
    /// Checks and compiles a module.
    ///
    /// # Errors
    /// In upstream's words, when it is no module, exports no memory, no function of a plugin or one of a wrong signature, or
    /// imports what the host does not have.
    pub fn new(bytes: &[u8], settings: Settings) -> Result<Self, String> {
        let (engine, module) = compile(bytes)?;
        Self::of_module(&engine, &module, settings)
    }

    pub(crate) fn of_module(engine: &Engine, module: &Module, settings: Settings) -> Result<Self, String> {
        let (engine, module) = (engine.clone(), module.clone());
        let mut linker = Linker::new(&engine);
        let linked = host::link(&mut linker).and_then(|()| wasi::link(&mut linker));
        linked.map_err(|e| format!("wasm: error compiling guest: {}", first_line(&e)))?;
        let exports = exports(&module)?;
        let imports = module.imports().map(|i| i.name().to_owned()).collect();
        Ok(Self { engine, module, linker, exports, imports, settings })
    }

    /// The same module with other settings.
    #[must_use]
    pub fn with(&self, settings: Settings) -> Self {
        let Self { engine, module, linker, exports, imports, settings: _ } = self;
        let (engine, module, linker) = (engine.clone(), module.clone(), linker.clone());
        Self { engine, module, linker, exports: exports.clone(), imports: imports.clone(), settings }
    }

    /// Whether the guest exports a function.
    pub fn has(&self, function: &str) -> bool {
        self.exports.contains(function)
    }

    /// Whether the guest imports a function.
    pub(crate) fn imports(&self, function: &str) -> bool {
        self.imports.contains(function)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Makes an instance and runs its main function.
    ///
    /// # Errors
    /// When the main function fails.
    pub fn instantiate(&self, now: i64) -> Result<Instance, String> {
        let limits = StoreLimitsBuilder::new()
            .memory_size(MAX_MEMORY)
            .table_elements(MAX_TABLE)
            .tables(8)
            .memories(1)
            .instances(1)
            .build();
        let Settings { name, config, severity, args } = self.settings.clone();
        let params = Params { now, ..Params::default() };
        let seed = name.bytes().fold(0x1505_u64, |seed, byte| seed.wrapping_mul(33) ^ u64::from(byte));
        let random = Rng::new(seed);
        let host = Host {
            name,
            config,
            severity,
            args,
            params,
            results: Results::default(),
            out: Vec::new(),
            random,
            limits,
        };
        let mut store = Store::new(&self.engine, host);
        store.limiter(|host| &mut host.limits);
        let failed = |store: &Store<Host>, error: &wasmtime::Error| {
            format!("failed to create a guest pool: {}", decorated(store, "instantiate", error))
        };
        if let Err(error) = store.set_fuel(MAX_FUEL) {
            return Err(failed(&store, &error));
        }
        let running = match self.linker.instantiate(&mut store, &self.module) {
            Ok(running) => running,
            Err(error) => return Err(failed(&store, &error)),
        };
        let mut instance = Instance { store, running, exhausted: false };
        if self.has("_start")
            && let Err(error) = instance.run::<()>("_start")
            && error.downcast_ref::<Exit>() != Some(&Exit(0))
        {
            return Err(failed(&instance.store, &error));
        }
        instance.store.data_mut().out.clear();
        Ok(instance)
    }
}

/// Checks and compiles a module.
pub(crate) fn compile(bytes: &[u8]) -> Result<(Engine, Module), String> {
    let failed = |e: wasmtime::Error| format!("wasm: error compiling guest: {}", first_line(&e));
    if bytes.len() > MAX_MODULE {
        return Err(format!("wasm: error compiling guest: it is larger than {MAX_MODULE} bytes"));
    }
    let mut config = Config::new();
    config.consume_fuel(true).cranelift_nan_canonicalization(true);
    let engine = Engine::new(&config).map_err(failed)?;
    let module = Module::from_binary(&engine, bytes).map_err(failed)?;
    Ok((engine, module))
}

/// The functions of the interface that a module exports (`detectInterfaces`, `maskInterfaces`).
fn exports(module: &Module) -> Result<BTreeSet<&'static str>, String> {
    if !matches!(module.get_export("memory"), Some(ExternType::Memory(_))) {
        return Err("wasm: guest doesn't export memory[memory]".to_owned());
    }
    let mut found = BTreeSet::new();
    for (name, results) in EXPORTS {
        let Some(ExternType::Func(function)) = module.get_export(name) else { continue };
        let result = |t: ValType| match t {
            ValType::I32 => 'i',
            ValType::I64 => 'l',
            _ => '?',
        };
        if function.params().len() != 0 || !function.results().map(result).eq(results.iter().copied()) {
            let shown = match results {
                ['i'] => "i32",
                ['l'] => "i64",
                _ => "",
            };
            return Err(format!(
                "wasm: guest exports the wrong signature for func[{name}]. should be () -> ({shown})"
            ));
        }
        found.insert(name);
    }
    let has = |names: &[&str]| names.iter().any(|name| found.contains(name));
    if found.iter().all(|name| *name == "_start") {
        return Err("wasm: guest does not export any plugin functions".to_owned());
    }
    // A guest with prefilter alone runs.
    if !has(&["prefilter", "filter", "score", "reserve", "unreserve", "permit", "bind"]) {
        return Err("wasm: filter, score, reserve, permit or bind must be exported".to_owned());
    }
    Ok(found)
}

/// A value that a function returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The value; 0 of a function without one.
    pub value: u64,
    /// What the guest said beside it.
    pub results: Results,
}

impl Answer {
    /// The lower half of the value.
    pub const fn low(&self) -> i32 {
        self.value as u32 as i32
    }

    /// The upper half of the value.
    pub const fn high(&self) -> i32 {
        (self.value >> 32) as u32 as i32
    }
}

/// A running instance of a guest. After an error its memory may be inconsistent: it is to be dropped.
pub struct Instance {
    store: Store<Host>,
    running: Running,
    exhausted: bool,
}

impl std::fmt::Debug for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Instance({})", self.store.data().name)
    }
}

impl Instance {
    /// Whether the last call executed all the instructions that it may.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// Calls a function of the interface.
    ///
    /// # Errors
    /// The text of the status: why the call failed, with what the guest wrote to its standard output before it.
    pub fn call(&mut self, function: &str, params: Params) -> Result<Answer, String> {
        #[cfg(test)]
        crate::tests::CALLS.with(|n| n.set(n.get() + 1));
        let host = self.store.data_mut();
        host.params = params;
        host.results = Results::default();
        host.out.clear();
        let value = match EXPORTS.iter().find(|(name, _)| *name == function).map(|(_, results)| *results) {
            Some(['i']) => self.run::<i32>(function).map(|value| u64::from(value.cast_unsigned())),
            Some(['l']) => self.run::<i64>(function).map(i64::cast_unsigned),
            _ => self.run::<()>(function).map(|()| 0),
        };
        match value {
            Ok(value) => {
                let results = std::mem::take(&mut self.store.data_mut().results);
                Ok(Answer { value, results })
            }
            Err(error) => {
                self.exhausted = error.downcast_ref::<Trap>() == Some(&Trap::OutOfFuel);
                Err(decorated(&self.store, function, &error))
            }
        }
    }

    fn run<T: wasmtime::WasmResults>(&mut self, function: &str) -> wasmtime::Result<T> {
        self.store.set_fuel(MAX_FUEL)?;
        self.running.get_typed_func::<(), T>(&mut self.store, function)?.call(&mut self.store, ())
    }

    /// Sets a global that the guest exports; false: there is none of this type.
    #[doc(hidden)]
    pub fn set_global(&mut self, name: &str, value: wasmtime::Val) -> bool {
        let global = self.running.get_global(&mut self.store, name);
        global.is_some_and(|global| global.set(&mut self.store, value).is_ok())
    }
}

/// An error as upstream shows it (`decorateError`), without the stack of the guest.
fn decorated(store: &Store<Host>, function: &str, error: &wasmtime::Error) -> String {
    let why = match (error.downcast_ref::<Trap>(), error.downcast_ref::<Exit>()) {
        (Some(Trap::OutOfFuel), _) => format!("it executed more than {MAX_FUEL} instructions"),
        (Some(trap), _) => format!("wasm error: {}", trap_name(*trap)),
        (None, Some(exit)) => exit.to_string(),
        (None, None) => root(error),
    };
    let out = String::from_utf8_lossy(&store.data().out);
    match out.trim_end_matches('\n') {
        "" => format!("wasm: {function} error: {why}"),
        out => format!("wasm: {function} error: {out}\n{why}"),
    }
}

/// wazero's names of traps.
pub(crate) fn trap_name(trap: Trap) -> String {
    match trap {
        Trap::UnreachableCodeReached => "unreachable",
        Trap::MemoryOutOfBounds => "out of bounds memory access",
        Trap::TableOutOfBounds | Trap::IndirectCallToNull => "invalid table access",
        Trap::BadSignature => "indirect call type mismatch",
        Trap::StackOverflow => "stack overflow",
        Trap::IntegerDivisionByZero => "integer divide by zero",
        Trap::IntegerOverflow => "integer overflow",
        Trap::BadConversionToInteger => "invalid conversion to integer",
        other => return other.to_string(),
    }
    .to_owned()
}

fn root(error: &wasmtime::Error) -> String {
    error.root_cause().to_string()
}

fn first_line(error: &wasmtime::Error) -> String {
    let text = format!("{error:#}");
    text.lines().next().unwrap_or_default().to_owned()
}
