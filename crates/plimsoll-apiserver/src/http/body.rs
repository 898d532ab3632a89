//! Bodies of answers: nothing, one buffer, or a stream of buffers (watches, logs).

use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use http_body::{Frame, SizeHint};

/// The body of an answer. A watch or log that can't go on just ends; a list that can't is [`Broken`].
pub struct Body {
    inner: Inner,
    /// Dropped when the body has been sent or given up.
    kept: Option<Box<dyn Any + Send>>,
    /// Whether it goes on for as long as its client listens.
    endless: bool,
}

/// The answer can't be completed: the connection or stream is reset, so that no client takes it for whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer is incomplete: {0}")]
pub struct Broken(pub String);

enum Inner {
    Full(Option<Bytes>),
    /// A buffer and a newline after it.
    Line(Option<Bytes>, bool),
    Stream(Pin<Box<dyn Stream<Item = Result<Bytes, Broken>> + Send>>),
}

impl Body {
    const fn new(inner: Inner) -> Self {
        Self { inner, kept: None, endless: false }
    }

    /// No body.
    pub fn empty() -> Self {
        Self::new(Inner::Full(None))
    }

    /// One buffer.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        Self::new(Inner::Full(Some(bytes.into())))
    }

    /// One buffer and a newline, which isn't copied together.
    pub fn line(bytes: impl Into<Bytes>) -> Self {
        Self::new(Inner::Line(Some(bytes.into()), true))
    }

    /// Whether it is sent as it comes.
    pub const fn is_stream(&self) -> bool {
        matches!(self.inner, Inner::Stream(_))
    }

    /// Keeps something until the body has been sent or given up.
    #[must_use]
    pub fn keeping<T: Send + 'static>(mut self, kept: T) -> Self {
        self.kept = Some(match self.kept.take() {
            None => Box::new(kept),
            Some(before) => Box::new((before, kept)),
        });
        self
    }

    /// Whether it goes on for as long as its client listens, as a watch does.
    pub const fn is_endless(&self) -> bool {
        self.endless
    }

    /// Ends an endless body early; others stay whole.
    #[must_use]
    pub fn until(mut self, end: impl Future<Output = ()> + Send + 'static) -> Self {
        self.inner = match self.inner {
            Inner::Stream(stream) if self.endless => {
                Inner::Stream(Box::pin(futures::StreamExt::take_until(stream, end)))
            }
            other => other,
        };
        self
    }

    /// A stream of buffers, each sent as it comes.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self { endless: true, ..Self::pieces(futures::StreamExt::map(stream, Ok)) }
    }

    /// As [`Body::stream`], of an answer that is incomplete without its end.
    pub fn pieces(stream: impl Stream<Item = Result<Bytes, Broken>> + Send + 'static) -> Self {
        Self::new(Inner::Stream(Box::pin(stream)))
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.inner {
            Inner::Full(b) => write!(f, "Body({} bytes)", b.as_ref().map_or(0, Bytes::len)),
            Inner::Line(b, _) => write!(f, "Body({} bytes)", b.as_ref().map_or(0, Bytes::len) + 1),
            Inner::Stream(_) => f.write_str("Body(stream)"),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut self.inner {
            Inner::Full(bytes) => Poll::Ready(bytes.take().map(|b| Ok(Frame::data(b)))),
            Inner::Line(bytes, newline) => {
                let end = || std::mem::take(newline).then(|| Bytes::from_static(b"\n"));
                Poll::Ready(bytes.take().or_else(end).map(|b| Ok(Frame::data(b))))
            }
            Inner::Stream(s) => s.as_mut().poll_next(cx).map(|o| o.map(|b| b.map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.inner, Inner::Full(None) | Inner::Line(None, false))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Full(b) => SizeHint::with_exact(b.as_ref().map_or(0, Bytes::len) as u64),
            Inner::Line(b, newline) => {
                let length = b.as_ref().map_or(0, Bytes::len) as u64;
                SizeHint::with_exact(length + u64::from(*newline))
            }
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}
