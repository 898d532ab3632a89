//! Starts a server: opens the store, reads the key, makes the objects that always exist.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;

use crate::aggregation::services;
use crate::auth::tokens::Signer;
use crate::server::{Server, ServerConfig, ServerError};
use crate::store::Store;
use crate::{bootstrap, custom, flow};

/// A server that starts. Boxed: the code of a future that is not is compiled again in each crate that awaits it, and this
/// one has the whole write path in it.
pub type Starting = BoxFuture<'static, Result<Arc<Server>, ServerError>>;

impl Server {
    /// Opens the store, makes the objects that always exist, and is ready.
    ///
    /// # Errors
    /// The store can't be opened or written.
    pub fn new(config: ServerConfig) -> Starting {
        Box::pin(async move {
            let store = match &config.data {
                Some(dir) => Store::open(dir, config.durability)?,
                None => Store::in_memory(),
            };
            Self::over(config, store).await
        })
    }

    /// As [`Server::new`], over a store that is already open.
    ///
    /// # Errors
    /// The store can't be written.
    pub fn over(config: ServerConfig, store: Store) -> Starting {
        Box::pin(async move {
            let signer = signer(config.data.as_deref())?;
            let followers = vec![custom::follower(), flow::keep::follower(), services::follower()];
            let server = Self::assemble(config, store, signer, followers);
            bootstrap::run(&server).await?;
            Ok(server)
        })
    }
}

/// The key that signs tokens: kept with the other credentials, or for this process only.
fn signer(data: Option<&Path>) -> Result<Signer, ServerError> {
    let Some(dir) = data else {
        return Signer::generate().map_err(|why| ServerError::Key { path: PathBuf::from("sa.key"), why });
    };
    let path = dir.join("pki").join("sa.key");
    Signer::load_or_create(&path).map_err(|why| ServerError::Key { path, why })
}
