//! A guest of the columnar interface: its module and its instances. Every value that a guest returns is checked: places, lengths
//! and numbers come from code that nobody here has written.

use plimsoll_plugin::{
    Charge, Flavor, Manifest, Permit, Pod, PodReader, Rejection, Ruling, Table, Workload, encode_flavors,
};
use wasmtime::{
    Engine, ExternType, Instance as Running, Linker, Memory, Module, Result as Wasm, Store,
    StoreLimitsBuilder, Trap, ValType, WasmParams, WasmResults,
};

use super::imports::{MAX_TEXT, State, link};
use super::manifest;
use crate::guest::{MAX_MEMORY, MAX_TABLE, compile, trap_name};

/// The export that tells a guest of this interface, version 1, from others.
pub const MARKER: &str = "plimsoll_plugin_v1";
/// Instructions that one call may execute; a fraction of a second.
pub const MAX_FUEL: u64 = 500_000_000;
/// Most charges of a pod.
const MAX_CHARGES: usize = 64;

/// Exports with their parameters and results; those with a point are there if the manifest names it.
const EXPORTS: [(&str, &str, &str, Option<&str>); 15] = [
    (MARKER, "", "", None),
    ("alloc", "i", "i", None),
    ("configure", "ii", "i", None),
    ("manifest", "", "l", None),
    ("columns", "ii", "", None),
    ("charges", "ii", "l", Some("charges")),
    ("pre_filter", "ii", "i", Some("preFilter")),
    ("filter", "iii", "i", Some("filter")),
    ("score", "iii", "i", Some("score")),
    ("reserve", "ii", "i", Some("reserve")),
    ("permit", "ii", "l", Some("permit")),
    ("post_bind", "ii", "", Some("postBind")),
    ("workload", "ii", "l", Some("workload")),
    ("flavor", "ii", "l", Some("flavor")),
    ("victim", "ii", "i", Some("victim")),
];

/// A module, checked and compiled.
#[derive(Clone)]
pub struct FastGuest {
    engine: Engine,
    module: Module,
    linker: Linker<State>,
}

impl std::fmt::Debug for FastGuest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastGuest").finish_non_exhaustive()
    }
}

impl FastGuest {
    /// Compiles a module.
    ///
    /// # Errors
    /// When it is no module, or no guest of this interface.
    pub fn new(bytes: &[u8]) -> Result<Self, String> {
        let (engine, module) = compile(bytes)?;
        match module.get_export(MARKER) {
            Some(_) => Self::of_module(&engine, &module),
            None => Err(format!("wasm: guest doesn't export func[{MARKER}]")),
        }
    }

    /// A module that has the [`MARKER`].
    ///
    /// # Errors
    /// When a function that every guest has is missing or has another signature.
    pub(crate) fn of_module(engine: &Engine, module: &Module) -> Result<Self, String> {
        if !matches!(module.get_export("memory"), Some(ExternType::Memory(_))) {
            return Err("wasm: guest doesn't export memory[memory]".to_owned());
        }
        for (name, params, results, point) in EXPORTS {
            let found = match module.get_export(name) {
                Some(ExternType::Func(found)) => found,
                _ if point.is_some() => continue,
                _ => return Err(format!("wasm: guest doesn't export func[{name}]")),
            };
            let is = |types: &mut dyn Iterator<Item = ValType>, want: &str| {
                types
                    .map(|t| {
                        matches!(t, ValType::I64).then_some('l').or(matches!(t, ValType::I32).then_some('i'))
                    })
                    .eq(want.chars().map(Some))
            };
            if !is(&mut found.params(), params) || !is(&mut found.results(), results) {
                return Err(format!("wasm: guest exports the wrong signature for func[{name}]"));
            }
        }
        let mut linker = Linker::new(engine);
        link(&mut linker).map_err(|e| format!("wasm: error compiling guest: {e}"))?;
        Ok(Self { engine: engine.clone(), module: module.clone(), linker })
    }

    /// Makes an instance, configures it and reads its manifest.
    ///
    /// # Errors
    /// When the guest refuses the configuration, fails, or its manifest is not valid.
    pub(crate) fn instantiate(&self, config: &str) -> Result<FastInstance, String> {
        let limits = StoreLimitsBuilder::new()
            .memory_size(MAX_MEMORY)
            .table_elements(MAX_TABLE)
            .tables(8)
            .memories(1)
            .instances(1)
            .build();
        let state = State { reason: String::new(), table: Table::default(), limits };
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| &mut state.limits);
        let failed = |e: &wasmtime::Error| format!("wasm: instantiate error: {}", why(e, MAX_FUEL));
        store.set_fuel(MAX_FUEL).map_err(|e| failed(&e))?;
        let running = self.linker.instantiate(&mut store, &self.module).map_err(|e| failed(&e))?;
        let Some(memory) = running.get_memory(&mut store, "memory") else {
            return Err("wasm: guest doesn't export memory[memory]".to_owned());
        };
        let mut instance = FastInstance {
            store,
            running,
            memory,
            exhausted: false,
            input: Area::default(),
            rows: Area::default(),
            answers: Area::default(),
            columns: Area::default(),
            capacity: 0,
            fuel: MAX_FUEL,
            manifest: Manifest::new(),
        };
        let place = instance.put(config.as_bytes())?;
        if instance.call::<_, i32>("configure", place)? != 0 {
            return Err(format!("wasm: the guest refuses its configuration: {}", instance.take_reason()));
        }
        let place = instance.call::<_, i64>("manifest", ())?;
        instance.manifest = manifest::parse(&instance.given(place)?)?;
        let names = &instance.manifest.points;
        let missing = EXPORTS.iter().find(|(name, .., point)| {
            let wanted = |point: &str| match point {
                "charges" => instance.manifest.charges,
                // `filter` and `score` are about the pod of its last call.
                "preFilter" => ["preFilter", "filter", "score"].iter().any(|p| names.contains(p)),
                point => names.contains(&point),
            };
            point.is_some_and(wanted) && self.module.get_export(name).is_none()
        });
        match missing {
            Some((name, ..)) => {
                Err(format!("wasm: the manifest names {name}, and guest doesn't export func[{name}]"))
            }
            None => Ok(instance),
        }
    }
}

fn why(error: &wasmtime::Error, fuel: u64) -> String {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => format!("it executed more than {fuel} instructions"),
        Some(trap) => format!("wasm error: {}", trap_name(*trap)),
        None => error.root_cause().to_string(),
    }
}

/// A part of the guest's memory that it has given to the host.
#[derive(Clone, Copy, Debug, Default)]
struct Area {
    at: u32,
    len: u32,
}

/// Which rows have changed since they were last written to the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dirty {
    /// All of them.
    All,
    /// These.
    Rows(Vec<u32>),
}

/// A running guest. After an error it is to be dropped.
pub(crate) struct FastInstance {
    store: Store<State>,
    running: Running,
    memory: Memory,
    exhausted: bool,
    input: Area,
    rows: Area,
    answers: Area,
    columns: Area,
    /// Rows for which there is room in the columns.
    capacity: usize,
    /// Instructions that a call may execute.
    fuel: u64,
    pub manifest: Manifest,
}

impl std::fmt::Debug for FastInstance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastInstance").finish_non_exhaustive()
    }
}

impl FastInstance {
    /// Whether the last call executed all the instructions that it may.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    fn call<P: WasmParams, R: WasmResults>(&mut self, function: &str, params: P) -> Result<R, String> {
        #[cfg(test)]
        super::tests::CALLS.with(|n| n.set(n.get() + 1));
        self.store.data_mut().reason.clear();
        let fuel = self.fuel;
        let run = |store: &mut Store<State>, running: &Running| -> Wasm<R> {
            store.set_fuel(fuel)?;
            running.get_typed_func::<P, R>(&mut *store, function)?.call(store, params)
        };
        run(&mut self.store, &self.running).map_err(|error| {
            self.exhausted = matches!(error.downcast_ref::<Trap>(), Some(Trap::OutOfFuel));
            format!("wasm: {function} error: {}", why(&error, fuel))
        })
    }

    fn take_reason(&mut self) -> String {
        std::mem::take(&mut self.store.data_mut().reason)
    }

    /// Memory for at least so many bytes.
    fn area(&mut self, area: Area, len: usize) -> Result<Area, String> {
        if area.len as usize >= len {
            return Ok(area);
        }
        let wanted = len.next_power_of_two().max(1024);
        let wanted = u32::try_from(wanted).map_err(|_| "wasm: more than a guest can have".to_owned())?;
        let at = self.call::<_, u32>("alloc", wanted)?;
        let fits = (at as usize)
            .checked_add(wanted as usize)
            .is_some_and(|end| end <= self.memory.data_size(&self.store));
        if !at.is_multiple_of(8) || !fits {
            return Err(format!(
                "wasm: alloc returned {at} for {wanted} bytes: not in memory, or not aligned to 8"
            ));
        }
        Ok(Area { at, len: wanted })
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> Result<(), String> {
        let written = self.memory.write(&mut self.store, at as usize, bytes);
        written.map_err(|_| "wasm: out of bounds memory access".to_owned())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(u32, u32), String> {
        self.input = self.area(self.input, bytes.len())?;
        self.write(self.input.at, bytes)?;
        Ok((self.input.at, u32::try_from(bytes.len()).unwrap_or(u32::MAX)))
    }

    fn put_pod(&mut self, pod: &Pod) -> Result<(u32, u32), String> {
        let mut bytes = Vec::new();
        pod.encode(&mut bytes);
        self.put(&bytes)
    }

    /// What a guest has given: place and length in one number.
    fn given(&self, place: i64) -> Result<Vec<u8>, String> {
        let (at, len) = ((place >> 32) as u32 as usize, place as u32 as usize);
        let bytes = self.memory.data(&self.store).get(at..).and_then(|rest| rest.get(..len));
        match bytes {
            Some(bytes) if len <= MAX_TEXT => Ok(bytes.to_vec()),
            Some(_) => Err(format!("wasm: the guest returned more than {MAX_TEXT} bytes")),
            None => Err("wasm: the guest returned a place outside of its memory".to_owned()),
        }
    }

    fn status(&mut self, code: i32) -> Result<Result<(), Rejection>, String> {
        let reason = self.take_reason();
        Ok(Err(match code {
            0 => return Ok(Ok(())),
            1 => Rejection::Error(reason),
            2 => Rejection::Unschedulable(reason),
            3 => Rejection::Unresolvable(reason),
            other => {
                return Err(format!("wasm: the guest returned the unknown status code {other}: {reason}"));
            }
        }))
    }

    /// What the pod holds.
    pub fn charges(&mut self, pod: &Pod) -> Result<Vec<Charge>, String> {
        let place = self.put_pod(pod)?;
        let place = self.call::<_, i64>("charges", place)?;
        let bytes = self.given(place)?;
        let charges = PodReader(&bytes).charges().filter(|charges| charges.len() <= MAX_CHARGES);
        let charges = charges.ok_or("wasm: charges returned no list of charges, or a long one")?;
        match charges.iter().any(|c| c.amount < 0) {
            true => Err("wasm: charges returned a negative amount".to_owned()),
            false => Ok(charges),
        }
    }

    /// PreFilter: the pod is the one that the calls after this one are about.
    pub fn pre_filter(&mut self, pod: &Pod) -> Result<Result<(), Rejection>, String> {
        let place = self.put_pod(pod)?;
        let code = self.call("pre_filter", place)?;
        self.status(code)
    }

    /// Writes what has changed into the columns.
    pub fn write_columns(&mut self, table: &Table, dirty: &Dirty) -> Result<(), String> {
        let (numbers, codes) = table.columns();
        let (numbers, codes): (Vec<_>, Vec<_>) = (numbers.collect(), codes.collect());
        let places = 4 * (numbers.len() + codes.len()).next_multiple_of(2);
        let grows = self.capacity < table.rows || self.columns.len == 0;
        if grows {
            self.capacity = table.rows.next_power_of_two().max(64);
            let len = places + self.capacity * (8 * numbers.len() + 4 * codes.len());
            self.columns = self.area(self.columns, len)?;
        }
        let first = self.columns.at as usize + places;
        let number_at = |i: usize| first + i * 8 * self.capacity;
        let code_at = |i: usize| first + numbers.len() * 8 * self.capacity + i * 4 * self.capacity;
        let data = self.memory.data_mut(&mut self.store);
        let mut put = |at: usize, bytes: &[u8]| -> Option<()> {
            data.get_mut(at..)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
            Some(())
        };
        let mut write = || -> Option<()> {
            let rows: Box<dyn Iterator<Item = usize>> = match dirty {
                Dirty::Rows(rows) if !grows => Box::new(rows.iter().map(|row| *row as usize)),
                Dirty::Rows(_) | Dirty::All => Box::new(0..table.rows),
            };
            for row in rows {
                for (i, column) in numbers.iter().enumerate() {
                    put(number_at(i) + 8 * row, &column.get(row)?.to_le_bytes())?;
                }
                for (i, column) in codes.iter().enumerate() {
                    put(code_at(i) + 4 * row, &column.get(row)?.to_le_bytes())?;
                }
            }
            if grows {
                let all = (0..numbers.len()).map(number_at).chain((0..codes.len()).map(code_at));
                for (i, at) in all.enumerate() {
                    put(self.columns.at as usize + 4 * i, &u32::try_from(at).ok()?.to_le_bytes())?;
                }
            }
            Some(())
        };
        write().ok_or("wasm: out of bounds memory access")?;
        if grows {
            let rows = u32::try_from(self.capacity).unwrap_or(u32::MAX);
            self.call::<_, ()>("columns", (self.columns.at, rows))?;
        }
        Ok(())
    }

    fn batch(
        &mut self,
        function: &str,
        table: &mut Table,
        rows: &[u32],
        width: usize,
    ) -> Result<Vec<u8>, String> {
        let bytes: Vec<u8> = rows.iter().flat_map(|row| row.to_le_bytes()).collect();
        self.rows = self.area(self.rows, bytes.len())?;
        self.write(self.rows.at, &bytes)?;
        self.answers = self.area(self.answers, rows.len() * width)?;
        let n = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        std::mem::swap(table, &mut self.store.data_mut().table);
        let code = self.call::<_, i32>(function, (self.rows.at, n, self.answers.at));
        std::mem::swap(table, &mut self.store.data_mut().table);
        if code? != 0 {
            return Err(format!("wasm: {function} error: {}", self.take_reason()));
        }
        let at = self.answers.at as usize;
        let answers = self.memory.data(&self.store).get(at..).and_then(|rest| rest.get(..rows.len() * width));
        answers.map(<[u8]>::to_vec).ok_or_else(|| "wasm: out of bounds memory access".to_owned())
    }

    /// Filter: for each row 0, or the number of the reason after the first.
    pub fn filter(&mut self, table: &mut Table, rows: &[u32]) -> Result<Vec<u8>, String> {
        let answers = self.batch("filter", table, rows, 1)?;
        let reasons = self.manifest.reasons.len();
        match answers.iter().find(|answer| usize::from(**answer) > reasons) {
            Some(answer) => Err(format!("wasm: filter returned reason {answer} of {reasons}")),
            None => Ok(answers),
        }
    }

    /// Score: for each row its raw score.
    pub fn score(&mut self, table: &mut Table, rows: &[u32]) -> Result<Vec<i64>, String> {
        let answers = self.batch("score", table, rows, 8)?;
        Ok(answers.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
    }

    /// Reserve.
    pub fn reserve(&mut self, pod: &Pod) -> Result<Result<(), Rejection>, String> {
        let place = self.put_pod(pod)?;
        let code = self.call("reserve", place)?;
        self.status(code)
    }

    /// Permit.
    pub fn permit(&mut self, pod: &Pod) -> Result<Permit, String> {
        let place = self.put_pod(pod)?;
        let answer = self.call::<_, i64>("permit", place)?;
        match (answer >> 32) as i32 {
            4 => Ok(Permit::Wait(answer as u32)),
            code => Ok(match self.status(code)? {
                Ok(()) => Permit::Allow,
                Err(why) => Permit::Reject(why),
            }),
        }
    }

    /// PostBind.
    pub fn post_bind(&mut self, pod: &Pod) -> Result<(), String> {
        let place = self.put_pod(pod)?;
        self.call("post_bind", place)
    }

    /// Calls that may execute so many instructions each.
    pub fn with_fuel<T>(&mut self, fuel: u64, f: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.fuel, fuel);
        let answer = f(self);
        self.fuel = before;
        answer
    }

    /// What the guest gives for a workload, and for flavors where there are some.
    fn about(
        &mut self,
        function: &str,
        workload: &Workload,
        flavors: Option<&[Flavor]>,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        workload.encode(&mut bytes);
        flavors.into_iter().for_each(|flavors| encode_flavors(flavors, &mut bytes));
        let place = self.put(&bytes)?;
        let place = self.call::<_, i64>(function, place)?;
        self.given(place)
    }

    /// What the guest says about a workload.
    pub fn rule(&mut self, workload: &Workload) -> Result<Ruling, String> {
        let bytes = self.about("workload", workload, None)?;
        Ruling::decode(&bytes).ok_or_else(|| "wasm: workload returned no ruling".to_owned())
    }

    /// A score for each flavor.
    pub fn score_flavors(&mut self, workload: &Workload, flavors: &[Flavor]) -> Result<Vec<i32>, String> {
        let bytes = self.about("flavor", workload, Some(flavors))?;
        if bytes.len() != 4 * flavors.len() {
            let (n, of) = (bytes.len(), flavors.len());
            return Err(format!(
                "wasm: flavor returned {n} bytes for {of} flavors: four for each are needed"
            ));
        }
        Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect())
    }

    /// The place of a workload among candidates for preemption.
    pub fn victim_order(&mut self, workload: &Workload) -> Result<i32, String> {
        let mut bytes = Vec::new();
        workload.encode(&mut bytes);
        let place = self.put(&bytes)?;
        self.call::<_, i32>("victim", place)
    }
}
