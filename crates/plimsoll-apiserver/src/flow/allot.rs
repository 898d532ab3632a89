//! Seats of the priority levels: by their shares, and adjusted to what they want
//! (KEP-1040; `apf_controller.go` and `conc_alloc.go` of `k8s.io/apiserver/pkg/util/flowcontrol`).

use super::level::Demand;

/// Decay of the smoothed demand per period, of which five minutes are the half-life (`seatDemandSmoothingCoefficient`).
const DECAY: f64 = 0.977;
/// Least target of a level, so that nothing is divided by zero (`MinTarget`).
const MIN_TARGET: f64 = 0.001;

/// How a level's seats are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// `nominalConcurrencyShares`.
    pub nominal: u32,
    /// `lendablePercent`.
    pub lendable: u32,
    /// `borrowingLimitPercent`; `None`: as much as there is.
    pub borrowing: Option<u32>,
}

/// Seats of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seats {
    /// By its shares.
    pub nominal: usize,
    /// Least, when all that may be lent is lent.
    pub least: usize,
    /// Most, when it borrows all that it may.
    pub most: usize,
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "numbers of seats"
)]
mod round {
    pub fn to(x: f64) -> usize {
        x.round().max(0.0) as usize
    }
    pub fn up(x: f64) -> usize {
        x.ceil().max(0.0) as usize
    }
    pub fn float(n: usize) -> f64 {
        n as f64
    }
}

/// Seats of each level, of `total` in all. Each is rounded up, so that they may be a few more together.
pub fn seats(total: usize, levels: &[Shares]) -> Vec<Seats> {
    let all: f64 = levels.iter().map(|l| f64::from(l.nominal)).sum();
    let of = |level: &Shares| {
        let share = if all > 0.0 { f64::from(level.nominal) / all } else { 0.0 };
        let nominal = round::up(round::float(total) * share);
        let percent = |p: u32| round::to(round::float(nominal) * f64::from(p) / 100.0);
        let lendable = percent(level.lendable).min(nominal);
        let borrowed = level.borrowing.map_or(total, percent);
        Seats { nominal, least: nominal - lendable, most: nominal + borrowed }
    };
    levels.iter().map(of).collect()
}

/// A level at the end of a period.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Its seats.
    pub seats: Seats,
    /// Most that it wanted at any time of the period.
    pub high: usize,
    /// Smoothed demand.
    pub smoothed: f64,
    /// Whether it is exempt: it gets what it wants.
    pub exempt: bool,
}

/// Demand smoothed over periods: it rises at once and falls slowly.
pub fn smooth(before: f64, demand: &Demand) -> f64 {
    let envelope = demand.average + demand.deviation;
    envelope.max(DECAY * before + (1.0 - DECAY) * envelope)
}

impl Claim {
    /// What the level keeps in any case: what it wanted, as far as that is its own, and never less than its least.
    fn floor(&self) -> usize {
        self.seats.least.max(self.high.min(self.seats.nominal))
    }
}

/// Current limits of the levels for the next period: those that want more borrow seats of those that may lend.
pub fn borrow(claims: &[Claim]) -> Vec<usize> {
    let total: usize = claims.iter().map(|c| c.seats.nominal).sum();
    let exempt = |c: &Claim| c.seats.least.max(c.high);
    let taken: usize = claims.iter().filter(|c| c.exempt).map(exempt).sum();
    let rest = total.saturating_sub(taken);
    let limited = || claims.iter().filter(|c| !c.exempt);
    let least: usize = limited().map(|c| c.seats.least).sum();
    let floors: usize = limited().map(Claim::floor).sum();
    let fraction = match () {
        () if rest <= least => None,
        () if rest <= floors => {
            Some(round::float(rest - least) / round::float(floors.saturating_sub(least).max(1)))
        }
        () => return even(total, claims),
    };
    let limit = |c: &Claim| match fraction {
        _ if c.exempt => exempt(c),
        None => c.seats.least,
        Some(part) => c.seats.least + round::to(round::float(c.floor() - c.seats.least) * part),
    };
    claims.iter().map(limit).collect()
}

/// The one factor of all targets at which the limits, each within its bounds, have the sum that there is.
fn even(total: usize, claims: &[Claim]) -> Vec<usize> {
    let at = |claim: &Claim, factor: f64| {
        let floor = round::float(claim.floor());
        let target = claim.smoothed.max(floor).max(MIN_TARGET);
        (target * factor).clamp(floor, round::float(claim.seats.most).max(floor))
    };
    let sum = |factor: f64| claims.iter().filter(|c| !c.exempt).map(|c| at(c, factor)).sum::<f64>();
    let (mut low, mut high) = (0.0, round::float(total) / MIN_TARGET);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if sum(middle) < round::float(total) { low = middle } else { high = middle }
    }
    let limit = |c: &Claim| if c.exempt { c.seats.least.max(c.high) } else { round::to(at(c, low)) };
    claims.iter().map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn shares(nominal: u32, lendable: u32) -> Shares {
        Shares { nominal, lendable, borrowing: None }
    }

    /// Upstream's suggested levels: system, node-high, leader-election, workload-high, workload-low, global-default,
    /// catch-all and exempt.
    fn suggested() -> Vec<Seats> {
        let rows = [(30, 33), (40, 25), (10, 0), (40, 50), (100, 90), (20, 50), (5, 0), (0, 0)];
        seats(600, &rows.map(|(n, l)| shares(n, l)))
    }

    #[test]
    fn seats_are_by_shares() {
        let nominal: Vec<usize> = suggested().iter().map(|s| s.nominal).collect();
        assert_eq!(nominal, [74, 98, 25, 98, 245, 49, 13, 0]);
        assert_eq!(suggested()[0], Seats { nominal: 74, least: 50, most: 674 });
        let half = seats(100, &[Shares { nominal: 1, lendable: 0, borrowing: Some(50) }]);
        assert_eq!(half, [Seats { nominal: 100, least: 100, most: 150 }]);
    }

    #[test]
    fn a_level_that_wants_more_borrows_of_those_that_want_nothing() {
        let mut claims: Vec<Claim> = suggested()
            .into_iter()
            .enumerate()
            .map(|(n, seats)| Claim { seats, high: 0, smoothed: 0.0, exempt: n == 7 })
            .collect();
        claims[5].high = 300;
        claims[5].smoothed = 300.0;
        let limits = borrow(&claims);
        assert!(limits[5] > 200, "{limits:?}");
        for (claim, limit) in claims.iter().zip(&limits) {
            assert!((claim.seats.least..=claim.seats.most).contains(limit), "{limits:?}");
        }
        let sum: usize = limits.iter().sum();
        assert!((598..=606).contains(&sum), "{limits:?}");
        // What was lent comes back as soon as it is wanted.
        claims[4].high = 245;
        claims[4].smoothed = 245.0;
        assert_eq!(borrow(&claims)[4], 245);
    }

    #[test]
    fn exempt_requests_take_seats_of_the_others() {
        let seats = seats(100, &[shares(1, 50), shares(0, 0)]);
        let claims = [
            Claim { seats: seats[0], high: 100, smoothed: 100.0, exempt: false },
            Claim { seats: seats[1], high: 30, smoothed: 0.0, exempt: true },
        ];
        assert_eq!(borrow(&claims), [70, 30]);
        let claims = [claims[0], Claim { high: 90, ..claims[1] }];
        assert_eq!(borrow(&claims), [50, 90]);
    }

    #[test]
    fn smoothed_demand_rises_at_once_and_falls_slowly() {
        let demand = |average| Demand { high: 0, average, deviation: 0.0 };
        assert!((smooth(0.0, &demand(10.0)) - 10.0).abs() < 1e-9);
        let later = (0..30).fold(10.0, |s, _| smooth(s, &demand(0.0)));
        assert!((4.9..5.1).contains(&later), "{later}");
    }
}
