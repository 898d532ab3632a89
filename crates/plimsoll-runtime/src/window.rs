//! How many decisions are written at once: enough to keep the API server busy, and no more.
//!
//! As in TCP Vegas, the time that a write takes beyond the fastest one is time in the server's queues. A window of writes
//! that take three times as long as the fastest has two thirds of them in these queues. The window grows while fewer
//! than [`FEW`] stand there and shrinks when there are more than [`MANY`]. More would not be written sooner: they cost the
//! server memory and switches, and with HTTP/1 a connection each.

/// Smallest window, and the one at the start.
const LEAST: f64 = 16.0;
/// Largest window.
const MOST: f64 = 256.0;
/// With fewer writes in its queues the server may run dry.
const FEW: f64 = 16.0;
/// More writes in its queues are of no use.
const MANY: f64 = 32.0;
/// Factor of a cut after a refusal.
const CUT: f64 = 0.7;
/// How fast the fastest time is forgotten: its share of the difference with each write. A busy server answers late all
/// the time, which must not become the measure.
const DRIFT: f64 = 1e-5;

/// The window.
#[derive(Debug)]
pub struct Window {
    size: f64,
    /// Whether it has never been too large: it doubles until then.
    starting: bool,
    /// Seconds of the fastest writes.
    fastest: Option<f64>,
}

impl Default for Window {
    fn default() -> Self {
        Self { size: LEAST, starting: true, fastest: None }
    }
}

impl Window {
    /// Most writes under way.
    pub const fn size(&self) -> usize {
        self.size as usize
    }

    /// A write took so many seconds, with `under_way` beside it. `refused`: the server asked for fewer (429).
    pub fn learn(&mut self, took: f64, under_way: usize, refused: bool) {
        let fastest = self.fastest.map_or(took, |f| if took < f { took } else { f + (took - f) * DRIFT });
        self.fastest = Some(fastest);
        let waiting = if took > 0.0 { self.size * (1.0 - fastest / took) } else { 0.0 };
        if refused {
            self.starting = false;
            self.size *= CUT;
        } else if waiting > MANY {
            self.starting = false;
            self.size -= 1.0 / self.size;
        } else if waiting < FEW && under_way + 1 >= self.size() {
            self.size += if self.starting { 1.0 } else { 1.0 / self.size };
        }
        self.size = self.size.clamp(LEAST, MOST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes to a server that takes `rate` a second and `least` seconds for each; gives the window in the end.
    fn write(window: &mut Window, writes: usize, rate: f64, least: f64) -> usize {
        for _ in 0..writes {
            let size = window.size();
            let took = least.max(size as f64 / rate);
            window.learn(took, size - 1, false);
        }
        window.size()
    }

    #[test]
    fn a_near_server_has_some_in_its_queues() {
        let mut window = Window::default();
        window.learn(0.002, 0, false);
        let size = write(&mut window, 10_000, 1000.0, 0.002);
        assert!((17..=36).contains(&size), "{size}");
        let size = write(&mut window, 100_000, 1000.0, 0.002);
        assert!(size <= 80, "what is always late becomes no measure: {size}");
    }

    #[test]
    fn a_far_server_is_kept_busy() {
        // 20 ms away, 5,000 writes a second: 100 writes are on the way.
        let mut window = Window::default();
        let size = write(&mut window, 10_000, 5000.0, 0.02);
        assert!((110..=150).contains(&size), "{size}");
    }

    #[test]
    fn refusals_cut_it_and_idle_time_leaves_it() {
        let mut window = Window::default();
        let size = write(&mut window, 10_000, 5000.0, 0.02);
        window.learn(0.02, size - 1, true);
        assert!(window.size() < size * 3 / 4);
        for _ in 0..1000 {
            window.learn(0.02, 0, true);
        }
        assert_eq!(window.size(), 16);
        for _ in 0..1000 {
            window.learn(0.02, 3, false);
        }
        assert_eq!(window.size(), 16, "it grows only while it is used");
    }
}
