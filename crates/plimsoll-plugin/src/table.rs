//! The columns of nodes outside of a guest.

use std::collections::BTreeMap;

use crate::{Manifest, Nodes, Texts};

/// Columns of nodes, one row per node in each of them, in the order of the manifest.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// How many rows there are.
    pub rows: usize,
    /// Allocatable amounts.
    pub allocatable: Vec<Vec<i64>>,
    /// What pods request.
    pub requested: Vec<Vec<i64>>,
    /// Labels as numbers.
    pub numbers: Vec<Vec<i64>>,
    /// Labels as codes.
    pub labels: Vec<Vec<u32>>,
    /// Taints as codes; empty unless the manifest reads them.
    pub taints: Vec<Vec<u32>>,
    /// Annotations as codes.
    pub annotations: Vec<Vec<u32>>,
    /// Annotations as numbers.
    pub annotation_numbers: Vec<Vec<i64>>,
    texts: Vec<String>,
    codes: BTreeMap<String, u32>,
}

impl Table {
    /// Columns without rows.
    pub fn new(manifest: &Manifest) -> Self {
        let numbers = |n: usize| vec![Vec::new(); n];
        let codes = |n: usize| vec![Vec::new(); n];
        Self {
            allocatable: numbers(manifest.node_resources.len()),
            requested: numbers(manifest.node_resources.len()),
            numbers: numbers(manifest.node_numbers.len()),
            labels: codes(manifest.node_labels.len()),
            taints: codes(usize::from(manifest.node_taints)),
            annotations: codes(manifest.node_annotations.len()),
            annotation_numbers: numbers(manifest.node_annotation_numbers.len()),
            ..Self::default()
        }
    }

    /// Makes rows up to this number, empty ones.
    pub fn grow(&mut self, rows: usize) {
        self.rows = self.rows.max(rows);
        let rows = self.rows;
        self.allocatable.iter_mut().chain(&mut self.requested).for_each(|c| c.resize(rows, 0));
        let numbers = self.numbers.iter_mut().chain(&mut self.annotation_numbers);
        numbers.for_each(|c| c.resize(rows, Nodes::NONE));
        let codes = self.labels.iter_mut().chain(&mut self.taints).chain(&mut self.annotations);
        codes.for_each(|c| c.resize(rows, 0));
    }

    /// The columns of numbers, then those of codes, in the order in which a guest gets them.
    pub fn columns(&self) -> (impl Iterator<Item = &Vec<i64>>, impl Iterator<Item = &Vec<u32>>) {
        let numbers = self.allocatable.iter().chain(&self.requested).chain(&self.numbers);
        let codes = self.labels.iter().chain(&self.taints).chain(&self.annotations);
        (numbers.chain(&self.annotation_numbers), codes)
    }

    /// The code of a text, made now if it is new. The empty text has a code, too; 0 is no text.
    pub fn code(&mut self, text: &str) -> u32 {
        if let Some(code) = self.codes.get(text) {
            return *code;
        }
        self.texts.push(text.to_owned());
        let code = u32::try_from(self.texts.len()).unwrap_or(0);
        self.codes.insert(text.to_owned(), code);
        code
    }

    /// The text of a code.
    pub fn text(&self, code: u32) -> Option<&str> {
        self.texts.get(code.checked_sub(1)? as usize).map(String::as_str)
    }

    /// How many texts have a code.
    pub fn texts(&self) -> usize {
        self.texts.len()
    }

    /// The columns as a plugin sees them.
    pub fn with<T>(&self, f: impl FnOnce(&Nodes<'_>) -> T) -> T {
        fn all<T>(columns: &[Vec<T>]) -> Vec<&[T]> {
            columns.iter().map(Vec::as_slice).collect()
        }
        let (allocatable, requested, numbers) =
            (all(&self.allocatable), all(&self.requested), all(&self.numbers));
        f(&Nodes {
            allocatable: &allocatable,
            requested: &requested,
            numbers: &numbers,
            labels: &all(&self.labels),
            taints: self.taints.first().map_or(&[], Vec::as_slice),
            annotations: &all(&self.annotations),
            annotation_numbers: &all(&self.annotation_numbers),
            texts: Texts::List(&self.texts),
        })
    }
}
