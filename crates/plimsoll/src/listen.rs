//! Listeners of this process, and how clients reach them.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use tokio::net::TcpListener;

/// The address that clients should use: a wildcard is reached through loopback.
pub fn reachable(address: SocketAddr) -> String {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            std::net::Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    address.to_string()
}

/// Listens; `flag` is what chooses another port.
pub async fn listen(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
            bail!("{address} is in use by another program; choose another port with {flag}")
        }
        Err(e) => Err(e).with_context(|| format!("listening on {address}")),
    }
}
