//! Bodies of answers: nothing, one buffer, or a stream of buffers (watches, logs).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt};
use http_body::{Frame, SizeHint};

/// The body of an answer. It never fails: a stream that can't go on just ends.
pub struct Body(Inner);

enum Inner {
    Full(Option<Bytes>),
    /// A buffer and a newline after it.
    Line(Option<Bytes>, bool),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl Body {
    /// No body.
    pub fn empty() -> Self {
        Self(Inner::Full(None))
    }

    /// One buffer.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self(Inner::Full(Some(bytes.into())))
    }

    /// One buffer and a newline, which isn't copied together.
    pub fn line(bytes: impl Into<Bytes>) -> Self {
        Self(Inner::Line(Some(bytes.into()), true))
    }

    /// Whether it is sent as it comes.
    pub const fn is_stream(&self) -> bool {
        matches!(self.0, Inner::Stream(_))
    }

    /// Keeps something until the stream has been sent or given up.
    #[must_use]
    pub fn keeping<T: Send + 'static>(self, kept: T) -> Self {
        match self.0 {
            Inner::Stream(stream) => Self::stream(stream.inspect(move |_| {
                let _ = &kept;
            })),
            other => Self(other),
        }
    }

    /// A stream of buffers, each sent as it comes.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(Inner::Stream(Box::pin(stream)))
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Inner::Full(b) => write!(f, "Body({} bytes)", b.as_ref().map_or(0, Bytes::len)),
            Inner::Line(b, _) => write!(f, "Body({} bytes)", b.as_ref().map_or(0, Bytes::len) + 1),
            Inner::Stream(_) => f.write_str("Body(stream)"),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Inner::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Inner::Line(bytes, newline) => {
                let end = || std::mem::take(newline).then(|| Bytes::from_static(b"\n"));
                Poll::Ready(bytes.take().or_else(end).map(|b| Ok(Frame::data(b))))
            }
            Inner::Stream(s) => s.as_mut().poll_next(cx).map(|o| o.map(|b| Ok(Frame::data(b)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Inner::Full(None) | Inner::Line(None, false))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Full(b) => SizeHint::with_exact(b.as_ref().map_or(0, Bytes::len) as u64),
            Inner::Line(b, newline) => {
                let length = b.as_ref().map_or(0, Bytes::len) as u64;
                SizeHint::with_exact(length + u64::from(*newline))
            }
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}
