//! What unit tests share.

use std::ops::{Deref, DerefMut};

use plimsoll_state::Time;

use crate::{Config, Env, ObjectStore};

/// Objects with a configuration.
#[derive(Debug, Default)]
pub(crate) struct Fixture {
    pub objects: ObjectStore,
    pub config: Config,
}

impl Fixture {
    pub fn with_config(config: Config) -> Self {
        Self { objects: ObjectStore::default(), config }
    }

    pub fn env(&self, now: Time) -> Env<'_> {
        Env { objects: &self.objects, config: &self.config, now }
    }
}

impl Deref for Fixture {
    type Target = ObjectStore;

    fn deref(&self) -> &ObjectStore {
        &self.objects
    }
}

impl DerefMut for Fixture {
    fn deref_mut(&mut self) -> &mut ObjectStore {
        &mut self.objects
    }
}
