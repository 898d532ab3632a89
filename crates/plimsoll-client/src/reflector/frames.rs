//! Events of watches as they come: lines of JSON, or frames of protobuf.

use futures::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

use plimsoll_api::request::Error;

/// Longest event of a watch: an object may have 3 MiB, and JSON escapes can't make it grow past this.
const MAX_EVENT: usize = 32 << 20;

fn broken(e: &std::io::Error) -> Error {
    Error::Transport(e.to_string())
}

fn cut_off() -> Error {
    Error::Transport("a watch event is cut off".into())
}

fn too_long() -> Error {
    Error::Malformed("a watch event is too long".into())
}

/// What came of a watch.
pub(super) enum Next {
    /// It has ended.
    End,
    /// A line of JSON.
    Line,
    /// A frame of protobuf.
    Frame,
}

/// Reads the next event. A frame begins with its length in four bytes, the first of which is smaller than any with which
/// JSON may begin.
pub(super) async fn next(
    stream: &mut (impl AsyncBufRead + Unpin),
    event: &mut Vec<u8>,
) -> Result<Next, Error> {
    event.clear();
    let first = stream.fill_buf().await.map_err(|e| broken(&e))?.first().copied();
    match first {
        None => Ok(Next::End),
        Some(first) if usize::from(first) <= MAX_EVENT >> 24 => {
            let mut length = [0; 4];
            stream.read_exact(&mut length).await.map_err(|e| broken(&e))?;
            let length = u32::from_be_bytes(length);
            if length as usize > MAX_EVENT {
                return Err(too_long());
            }
            // The buffer grows with what comes, not with what was said.
            let read = stream.take(u64::from(length)).read_to_end(event).await.map_err(|e| broken(&e))?;
            match read == length as usize {
                true => Ok(Next::Frame),
                false => Err(cut_off()),
            }
        }
        Some(_) => {
            stream.read_until(b'\n', event).await.map_err(|e| broken(&e))?;
            match event.last() {
                _ if event.len() > MAX_EVENT => Err(too_long()),
                Some(b'\n') => Ok(Next::Line),
                _ => Err(cut_off()),
            }
        }
    }
}
