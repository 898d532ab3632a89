//! The exports of a guest: version 1 of the interface. Compiled for wasm32 only.

#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};

use crate::{
    Manifest, Nodes, Permit, Plugin, Pod, PodReader, Rejection, Texts, Workload, decode_flavors,
    encode_charges,
};

#[link(wasm_import_module = "plimsoll")]
unsafe extern "C" {
    #[link_name = "reason"]
    fn host_reason(at: u32, len: u32);
    #[link_name = "text"]
    fn host_text(code: u32, at: u32, room: u32) -> u32;
}

/// The text of a code; `None`: the host knows no such code.
pub fn text(code: u32) -> Option<String> {
    let mut bytes = vec![0_u8; 256];
    loop {
        let room = bytes.len() as u32;
        // SAFETY: the host writes at most `room` bytes into the vector.
        let len = unsafe { host_text(code, bytes.as_mut_ptr() as u32, room) };
        if len == u32::MAX {
            return None;
        }
        bytes.resize(len as usize, 0);
        if len <= room {
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
}

fn reason(text: &str) {
    // SAFETY: the host reads the bytes of the text.
    unsafe { host_reason(text.as_ptr() as u32, text.len() as u32) }
}

/// What lies at a place that the host has got from `alloc`.
///
/// # Safety
/// The host has written `len` values there, and does not write while this call runs.
unsafe fn slice<'a, T>(at: u32, len: u32) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: see above; `alloc` aligns for all types that the interface has.
    unsafe { std::slice::from_raw_parts(at as *const T, len as usize) }
}

/// The state of a guest.
#[derive(Debug)]
pub struct Guest<P> {
    plugin: RefCell<Option<(P, Manifest)>>,
    pod: RefCell<Pod>,
    /// Where the columns are, and how many rows they have.
    columns: Cell<(u32, u32)>,
    /// What was given to the host last.
    given: RefCell<Vec<u8>>,
}

impl<P> Default for Guest<P> {
    fn default() -> Self {
        let (plugin, pod) = (RefCell::new(None), RefCell::default());
        Self { plugin, pod, columns: Cell::default(), given: RefCell::default() }
    }
}

/// Memory for the host to write into; it is never given back, and the host asks for twice as much each time.
pub fn alloc(len: u32) -> u32 {
    let words = vec![0_u64; (len as usize).div_ceil(8)];
    words.leak().as_mut_ptr() as u32
}

impl<P: Plugin> Guest<P> {
    fn give(&self, bytes: Vec<u8>) -> u64 {
        let place = u64::from(bytes.as_ptr() as u32) << 32 | bytes.len() as u64;
        *self.given.borrow_mut() = bytes;
        place
    }

    fn plugin<T>(&self, f: impl FnOnce(&P, &Manifest) -> T, otherwise: T) -> T {
        match &*self.plugin.borrow() {
            Some((plugin, manifest)) => f(plugin, manifest),
            None => otherwise,
        }
    }

    fn status(outcome: Result<(), Rejection>) -> i32 {
        match outcome {
            Ok(()) => 0,
            Err(why) => {
                reason(why.reason());
                why.code()
            }
        }
    }

    /// Export `configure`.
    pub fn configure(&self, at: u32, len: u32) -> i32 {
        // SAFETY: the host has written the text there.
        let text = String::from_utf8_lossy(unsafe { slice::<u8>(at, len) });
        match P::configure(&text) {
            Ok(plugin) => {
                let manifest = plugin.manifest();
                *self.plugin.borrow_mut() = Some((plugin, manifest));
                0
            }
            Err(why) => {
                reason(&why);
                1
            }
        }
    }

    /// Export `manifest`.
    pub fn manifest(&self) -> u64 {
        let text = self.plugin(|_, manifest| manifest.to_json(), String::new());
        self.give(text.into_bytes())
    }

    /// Export `columns`.
    pub fn columns(&self, at: u32, rows: u32) {
        self.columns.set((at, rows));
    }

    fn with_pod<T>(&self, at: u32, len: u32, f: impl FnOnce(&P, &Pod) -> T, otherwise: T) -> T {
        // SAFETY: the host has written the pod there.
        let bytes = unsafe { slice::<u8>(at, len) };
        self.plugin(
            |plugin, manifest| {
                let pod = Pod::decode(bytes, manifest.pod_requests.len(), manifest.pod_labels.len());
                f(plugin, &pod.unwrap_or_default())
            },
            otherwise,
        )
    }

    /// Export `charges`.
    pub fn charges(&self, at: u32, len: u32) -> u64 {
        let charges = self.with_pod(at, len, |plugin, pod| plugin.charges(pod), Vec::new());
        let mut bytes = Vec::new();
        encode_charges(&charges, &mut bytes);
        self.give(bytes)
    }

    /// Export `pre_filter`.
    pub fn pre_filter(&self, at: u32, len: u32) -> i32 {
        let keep = |plugin: &P, pod: &Pod| {
            self.pod.replace(pod.clone());
            Self::status(plugin.pre_filter(pod))
        };
        self.with_pod(at, len, keep, 1)
    }

    fn nodes<T>(&self, manifest: &Manifest, f: impl FnOnce(&Nodes<'_>) -> T) -> T {
        let (at, rows) = self.columns.get();
        let resources = manifest.node_resources.len();
        let of_labels = 2 * resources + manifest.node_numbers.len();
        let numbers = of_labels + manifest.node_annotation_numbers.len();
        let taints = usize::from(manifest.node_taints);
        let codes = manifest.node_labels.len() + taints + manifest.node_annotations.len();
        // SAFETY: the host has written the places of all columns there, and each of them has so many rows.
        let places = unsafe { slice::<u32>(at, (numbers + codes) as u32) };
        let (of_numbers, of_codes) = places.split_at(numbers);
        // SAFETY: as above.
        let numbers: Vec<&[i64]> = of_numbers.iter().map(|p| unsafe { slice(*p, rows) }).collect();
        // SAFETY: as above.
        let codes: Vec<&[u32]> = of_codes.iter().map(|p| unsafe { slice(*p, rows) }).collect();
        let (labels, others) = codes.split_at(manifest.node_labels.len());
        let (taints, annotations) = others.split_at(taints);
        f(&Nodes {
            allocatable: &numbers[..resources],
            requested: &numbers[resources..2 * resources],
            numbers: &numbers[2 * resources..of_labels],
            labels,
            taints: taints.first().copied().unwrap_or(&[]),
            annotations,
            annotation_numbers: &numbers[of_labels..],
            texts: Texts::Host,
        })
    }

    /// Calls `f` for the pod and each of the rows.
    fn batch<T: Copy>(
        &self,
        (at, n, out): (u32, u32, u32),
        f: impl Fn(&P, &Pod, &Nodes<'_>, usize) -> T,
    ) -> i32 {
        // SAFETY: the host has written the rows there.
        let rows = unsafe { slice::<u32>(at, n) };
        // SAFETY: the host has room for as many answers there, and nothing else refers to it.
        let out = match n {
            0 => &mut [][..],
            n => unsafe { std::slice::from_raw_parts_mut(out as *mut T, n as usize) },
        };
        let pod = self.pod.borrow();
        let run = |plugin: &P, manifest: &Manifest| {
            self.nodes(manifest, |nodes| {
                for (row, out) in rows.iter().zip(out) {
                    *out = f(plugin, &pod, nodes, *row as usize);
                }
            });
            0
        };
        self.plugin(run, 1)
    }

    /// Export `filter`.
    pub fn filter(&self, rows: u32, n: u32, out: u32) -> i32 {
        self.batch((rows, n, out), |plugin, pod, nodes, node| {
            plugin.filter(pod, nodes, node).map_or(0_u8, |reason| reason.saturating_add(1))
        })
    }

    /// Export `score`.
    pub fn score(&self, rows: u32, n: u32, out: u32) -> i32 {
        self.batch((rows, n, out), P::score)
    }

    /// Export `reserve`.
    pub fn reserve(&self, at: u32, len: u32) -> i32 {
        self.with_pod(at, len, |plugin, pod| Self::status(plugin.reserve(pod)), 1)
    }

    /// Export `permit`.
    pub fn permit(&self, at: u32, len: u32) -> u64 {
        let answer = |plugin: &P, pod: &Pod| match plugin.permit(pod) {
            Permit::Allow => 0,
            Permit::Wait(millis) => 4 << 32 | u64::from(millis),
            Permit::Reject(why) => u64::from(Self::status(Err(why)).cast_unsigned()) << 32,
        };
        self.with_pod(at, len, answer, 1 << 32)
    }

    /// Export `post_bind`.
    pub fn post_bind(&self, at: u32, len: u32) {
        self.with_pod(at, len, |plugin, pod| plugin.post_bind(pod), ());
    }

    /// Calls `f` for what is encoded: a workload, then flavors.
    fn with_workload<T>(
        &self,
        at: u32,
        len: u32,
        f: impl FnOnce(&P, &Manifest, &Workload, &mut PodReader<'_>) -> T,
        otherwise: T,
    ) -> T {
        // SAFETY: the host has written the workload there.
        let mut reader = PodReader(unsafe { slice::<u8>(at, len) });
        let run = |plugin: &P, manifest: &Manifest| {
            let workload = Workload::decode(&mut reader, manifest.workload_requests.len());
            f(plugin, manifest, &workload.unwrap_or_default(), &mut reader)
        };
        self.plugin(run, otherwise)
    }

    /// Export `workload`.
    pub fn workload(&self, at: u32, len: u32) -> u64 {
        let ruling =
            self.with_workload(at, len, |plugin, _, workload, _| plugin.rule(workload), Default::default());
        let mut bytes = Vec::new();
        ruling.encode(&mut bytes);
        self.give(bytes)
    }

    /// Export `flavor`.
    pub fn flavor(&self, at: u32, len: u32) -> u64 {
        let scores = |plugin: &P, manifest: &Manifest, workload: &Workload, reader: &mut PodReader<'_>| {
            let flavors = decode_flavors(reader, manifest.flavor_labels.len()).unwrap_or_default();
            let score = |flavor| plugin.score_flavor(workload, flavor).to_le_bytes();
            flavors.iter().flat_map(score).collect()
        };
        self.give(self.with_workload(at, len, scores, Vec::new()))
    }

    /// Export `victim`.
    pub fn victim(&self, at: u32, len: u32) -> i32 {
        self.with_workload(at, len, |plugin, _, workload, _| plugin.victim_order(workload), 0)
    }
}
