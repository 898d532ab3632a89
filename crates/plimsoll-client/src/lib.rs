//! The kit of everything that talks to an API server (client-go's part): requests, reflectors, informers, leader election,
//! work queues, the loop that controllers run in, event recorder, clock, supervised tasks.

pub mod api;
pub mod certificates;
pub mod clock;
pub mod controller;
pub mod discovery;
pub mod event_recorder;
pub mod fault;
pub mod health;
pub mod https;
mod indexer;
pub mod informer;
pub mod leader_election;
pub mod limit;
pub mod optional;
pub mod pager;
pub mod reader;
pub mod reflector;
pub mod resource;
pub mod rest;
pub mod shared;
pub mod supervise;
pub mod workers;
pub mod workqueue;

pub use api::{Client, Deletion, Propagation, Reply, Target, modify};
pub use clock::{Clock, SystemTime, TimeSource};
pub use controller::{Controller, Outcome};
pub use event_recorder::{Event, EventRecorder, EventType, Subject};
pub use informer::{Decode, IndexFn, Informer};
pub use reader::{Change, Expired, ObjectWatch, Reader, StoredObject};
pub use resource::{Resource, resources};
pub use shared::SharedInformers;
pub use supervise::{Fatal, Supervisor};
pub use workers::{Gate, SharedQueue};
pub use workqueue::{Backoff, WorkQueue};
