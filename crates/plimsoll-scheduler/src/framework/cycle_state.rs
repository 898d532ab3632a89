//! CycleState: what the plugins of a profile keep for one pod from one extension point to the next
//! (framework `CycleState`).

use std::any::{Any, TypeId};
use std::fmt;

/// Data by type, at most one value of each; the type is the key, so that plugins can't read what others mean otherwise.
///
/// Empty for most pods: nothing is allocated before the first value is written.
#[derive(Default)]
pub struct CycleState(Option<Box<Values>>);

type Values = Vec<(TypeId, Box<dyn Any>)>;

impl fmt::Debug for CycleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CycleState({} values)", self.0.as_ref().map_or(0, |v| v.len()))
    }
}

impl CycleState {
    /// Writes a value; an older one of the same type is replaced.
    pub fn write<T: Any>(&mut self, value: T) {
        let key = TypeId::of::<T>();
        let values = self.0.get_or_insert_default();
        values.retain(|(k, _)| *k != key);
        values.push((key, Box::new(value)));
    }

    /// The value of this type.
    pub fn read<T: Any>(&self) -> Option<&T> {
        let key = TypeId::of::<T>();
        self.0.as_ref()?.iter().find(|(k, _)| *k == key)?.1.downcast_ref()
    }

    /// Whether no plugin has written anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_type() {
        let mut state = CycleState::default();
        assert!(state.is_empty() && state.read::<u32>().is_none());
        state.write(1_u32);
        state.write("text");
        state.write(2_u32);
        assert_eq!((state.read::<u32>(), state.read::<&str>()), (Some(&2), Some(&"text")));
    }
}
