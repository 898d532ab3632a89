//! Reservations: capacity that is held for an owner before the owner uses it, or while its use is being written.
//!
//! Both halves of the engine reserve: queueing reserves quota in a ClusterQueue for a workload, the scheduler reserves
//! nodes for pods. They know different owners and places, so each keeps a table of its own, but the records are of one
//! kind: an owner, a cause, a place, what is held there, since when and until when. A reservation ends in one way,
//! [`Reservations::end`], whether its owner consumes it, it is released, or it expires.
//!
//! Owners and places are dense ids, so all operations take constant time, but for those on the expiry, which few
//! reservations have.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::grow::lengthen;
use crate::model::Pod;
use crate::slab::{Id, Slab, dense_id};
use crate::time::Time;

dense_id!(
    /// A reservation. The id of an ended reservation is given out again.
    ReservationId
);

dense_id!(
    /// A dry run: pods that may be created, placed one after the other. The id of an ended one is given out again.
    DryRunId
);

/// Why capacity is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// The workload has the condition `QuotaReserved`, or the write of it is on its way.
    QuotaReserved,
    /// Joint admission: the workload is admitted, or about to be, and a pod of it is still to come.
    JointAdmission,
    /// The pod is assumed on the node while its binding is written (`AssumePod` of kube-scheduler's cache).
    Assumed,
    /// The pod is nominated to the node (`status.nominatedNodeName`): it waits for its victims to leave.
    Nominated,
}

/// Why not all pods of a dry run have a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRunFailure {
    /// The scheduler's message about the first pod that fits nowhere.
    pub message: String,
    /// Whether pods that are there keep that pod off a node because of its labels or namespace: an equal one with others may
    /// fit.
    pub by_labels: bool,
}

/// Pods of a podset at places of a topology, as they will be created but for what they select there.
#[derive(Clone, Debug)]
pub struct PodsAt<'a> {
    /// One of them.
    pub pod: Pod,
    /// Labels of nodes that name a place.
    pub levels: &'a [String],
    /// Values of these labels, and how many pods are there. Where there is no topology, one place without values.
    pub places: Cow<'a, [(Vec<String>, i32)]>,
}

/// Nodes reserved for pods of a podset, as both halves of the engine name them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReservedNode {
    /// Name of the podset.
    pub pod_set: String,
    /// Name of the node.
    pub node: String,
    /// For how many pods.
    pub pods: usize,
}

/// Capacity that is held for an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation<O, P, H> {
    /// The owner: a workload or a pod.
    pub owner: O,
    /// Why.
    pub cause: Cause,
    /// Where: a node or a ClusterQueue.
    pub place: P,
    /// What is held there.
    pub held: H,
    /// When it was made.
    pub since: Time,
    /// When it ends by itself; `None`: only when it is consumed or released.
    pub expiry: Option<Time>,
}

/// By what reservations are listed.
#[derive(Clone, Copy, Debug)]
enum By {
    Owner,
    Place,
}

/// No reservation: the end of a list.
const NONE: ReservationId = ReservationId(u32::MAX);

/// Neighbours in a list.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: ReservationId,
    after: ReservationId,
}

impl Default for Links {
    fn default() -> Self {
        Self { before: NONE, after: NONE }
    }
}

/// The reservations of one owner or at one place, in the order in which they were made.
#[derive(Clone, Copy, Debug)]
struct List {
    first: ReservationId,
    last: ReservationId,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE, len: 0 }
    }
}

#[derive(Clone, Debug)]
struct Row<O, P, H> {
    reservation: Reservation<O, P, H>,
    /// In the lists by owner and by place.
    links: [Links; 2],
}

/// All reservations that one half of the engine made, found by owner, by place and by expiry.
#[derive(Clone, Debug)]
pub struct Reservations<O, P, H> {
    rows: Slab<ReservationId, Row<O, P, H>>,
    /// By owner and by place.
    lists: [Vec<List>; 2],
    expiries: BTreeSet<(Time, ReservationId)>,
}

impl<O, P, H> Default for Reservations<O, P, H> {
    fn default() -> Self {
        Self { rows: Slab::default(), lists: [Vec::new(), Vec::new()], expiries: BTreeSet::new() }
    }
}

impl<O: Id, P: Id, H> Reservations<O, P, H> {
    /// Reserves.
    pub fn make(&mut self, reservation: Reservation<O, P, H>) -> ReservationId {
        let (owner, place, expiry) =
            (reservation.owner.index(), reservation.place.index(), reservation.expiry);
        let id = self.rows.insert(Row { reservation, links: [Links::default(); 2] });
        self.link(By::Owner, owner, id);
        self.link(By::Place, place, id);
        self.expiries.extend(expiry.map(|at| (at, id)));
        id
    }

    /// Moves the end of a reservation.
    pub fn renew(&mut self, id: ReservationId, expiry: Option<Time>) {
        let Some(row) = self.rows.get_mut(id) else { return };
        let before = std::mem::replace(&mut row.reservation.expiry, expiry);
        if let Some(at) = before {
            self.expiries.remove(&(at, id));
        }
        self.expiries.extend(expiry.map(|at| (at, id)));
    }

    /// Ends a reservation: its owner uses the capacity from now on, it is released, or it has expired.
    pub fn end(&mut self, id: ReservationId) -> Option<Reservation<O, P, H>> {
        let Row { reservation, links } = self.rows.remove(id)?;
        self.unlink(By::Owner, reservation.owner.index(), links[By::Owner as usize]);
        self.unlink(By::Place, reservation.place.index(), links[By::Place as usize]);
        if let Some(at) = reservation.expiry {
            self.expiries.remove(&(at, id));
        }
        Some(reservation)
    }

    /// The reservation, unless it has ended.
    #[inline]
    pub fn get(&self, id: ReservationId) -> Option<&Reservation<O, P, H>> {
        Some(&self.rows.get(id)?.reservation)
    }

    /// What the reservation holds, to be changed.
    pub fn held_mut(&mut self, id: ReservationId) -> Option<&mut H> {
        Some(&mut self.rows.get_mut(id)?.reservation.held)
    }

    /// The reservations of an owner, in the order in which they were made.
    pub fn of(&self, owner: O) -> impl Iterator<Item = (ReservationId, &Reservation<O, P, H>)> {
        self.walk(By::Owner, owner.index())
    }

    /// The reservations at a place, in the order in which they were made.
    pub fn at(&self, place: P) -> impl Iterator<Item = (ReservationId, &Reservation<O, P, H>)> {
        self.walk(By::Place, place.index())
    }

    /// How many reservations an owner has.
    pub fn count_of(&self, owner: O) -> usize {
        self.list(By::Owner, owner.index()).len as usize
    }

    /// How many reservations there are at a place.
    pub fn count_at(&self, place: P) -> usize {
        self.list(By::Place, place.index()).len as usize
    }

    /// All reservations, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (ReservationId, &Reservation<O, P, H>)> {
        self.rows.iter().map(|(id, row)| (id, &row.reservation))
    }

    /// How many reservations there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing is reserved.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// When the next reservation expires.
    pub fn next_expiry(&self) -> Option<Time> {
        self.expiries.first().map(|(at, _)| *at)
    }

    /// The reservations that have expired and not ended, the oldest expiry first.
    pub fn expired(&self, now: Time) -> impl Iterator<Item = ReservationId> {
        self.expiries.iter().take_while(move |(at, _)| *at <= now).map(|(_, id)| *id)
    }

    #[inline]
    fn list(&self, by: By, index: usize) -> List {
        self.lists[by as usize].get(index).copied().unwrap_or_default()
    }

    fn walk(&self, by: By, index: usize) -> impl Iterator<Item = (ReservationId, &Reservation<O, P, H>)> {
        let mut at = self.list(by, index).first;
        std::iter::from_fn(move || {
            let id = at;
            let row = self.rows.get(id)?;
            at = row.links[by as usize].after;
            Some((id, &row.reservation))
        })
    }

    fn link(&mut self, by: By, index: usize, id: ReservationId) {
        let lists = &mut self.lists[by as usize];
        if lists.len() <= index {
            lengthen(lists, index + 1, List::default());
        }
        let list = &mut lists[index];
        let before = std::mem::replace(&mut list.last, id);
        list.len += 1;
        if before == NONE {
            list.first = id;
        } else {
            self.set_link(by, before, |l| l.after = id);
            self.set_link(by, id, |l| l.before = before);
        }
    }

    fn unlink(&mut self, by: By, index: usize, links: Links) {
        let list = &mut self.lists[by as usize][index];
        list.len -= 1;
        if links.before == NONE {
            list.first = links.after;
        }
        if links.after == NONE {
            list.last = links.before;
        }
        self.set_link(by, links.before, |l| l.after = links.after);
        self.set_link(by, links.after, |l| l.before = links.before);
    }

    fn set_link(&mut self, by: By, id: ReservationId, change: impl FnOnce(&mut Links)) {
        if let Some(row) = self.rows.get_mut(id) {
            change(&mut row.links[by as usize]);
        }
    }

    /// Compares the indexes with ones made from the records.
    ///
    /// # Panics
    /// When they differ.
    pub fn check(&self) {
        let expiries: BTreeSet<_> = self.iter().filter_map(|(id, r)| Some((r.expiry?, id))).collect();
        assert_eq!(expiries, self.expiries, "reservations by expiry");
        for by in [By::Owner, By::Place] {
            let mut listed = 0;
            for (index, list) in self.lists[by as usize].iter().enumerate() {
                let (mut before, mut len) = (NONE, 0);
                for (id, r) in self.walk(by, index) {
                    let key = match by {
                        By::Owner => r.owner.index(),
                        By::Place => r.place.index(),
                    };
                    assert_eq!(key, index, "{by:?}: a reservation in another list");
                    assert_eq!(self.rows[id].links[by as usize].before, before, "{by:?}: broken list");
                    (before, len) = (id, len + 1);
                }
                assert_eq!((before, len), (list.last, list.len), "{by:?}: end of a list");
                listed += len as usize;
            }
            assert_eq!(listed, self.len(), "{by:?}: reservations in no list");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    dense_id!(
        /// A pod of the test.
        PodId
    );
    dense_id!(
        /// A node of the test.
        NodeId
    );

    type Table = Reservations<PodId, NodeId, i64>;

    fn reservation(
        owner: u32,
        place: u32,
        held: i64,
        expiry: Option<i64>,
    ) -> Reservation<PodId, NodeId, i64> {
        Reservation {
            owner: PodId(owner),
            cause: Cause::JointAdmission,
            place: NodeId(place),
            held,
            since: Time(0),
            expiry: expiry.map(Time),
        }
    }

    #[test]
    fn reservations_are_found_by_owner_place_and_expiry() {
        let mut table = Table::default();
        let a = table.make(reservation(7, 1, 10, Some(50)));
        let b = table.make(reservation(7, 2, 20, None));
        let c = table.make(reservation(8, 1, 30, Some(40)));
        let held = |r: &Reservation<_, _, i64>| r.held;
        assert_eq!(table.of(PodId(7)).map(|(_, r)| held(r)).collect::<Vec<_>>(), [10, 20]);
        assert_eq!(table.at(NodeId(1)).map(|(_, r)| held(r)).collect::<Vec<_>>(), [10, 30]);
        assert_eq!((table.count_of(PodId(8)), table.count_at(NodeId(3))), (1, 0));
        assert_eq!(table.next_expiry(), Some(Time(40)));
        table.renew(c, Some(Time(60)));
        assert_eq!(table.expired(Time(60)).collect::<Vec<_>>(), [a, c]);
        assert_eq!(table.end(a).map(|r| r.held), Some(10));
        assert_eq!(table.end(a), None);
        *table.held_mut(b).unwrap() += 1;
        assert_eq!(table.get(b).map(held), Some(21));
        table.check();
    }

    proptest::proptest! {
        /// Whatever is made, renewed and ended: the indexes equal those made from the records.
        #[test]
        fn indexes_equal_a_rebuild(
            steps in proptest::collection::vec((0u8..6, 0u32..5, 0u32..4, proptest::option::of(0i64..9)), 0..60),
        ) {
            let mut table = Table::default();
            let mut all: Vec<(ReservationId, u32)> = Vec::new();
            for (what, owner, place, expiry) in steps {
                let at = owner as usize % all.len().max(1);
                match what {
                    0..=2 => {
                        let id = table.make(reservation(owner, place, 1, expiry));
                        all.push((id, owner));
                    }
                    3 if !all.is_empty() => table.renew(all[at].0, expiry.map(Time)),
                    _ if !all.is_empty() => {
                        let (id, owner) = all.remove(at);
                        proptest::prop_assert_eq!(table.end(id).map(|r| r.owner), Some(PodId(owner)));
                    }
                    _ => {}
                }
                table.check();
                for owner in 0..5 {
                    let found: Vec<_> = table.of(PodId(owner)).map(|(id, _)| id).collect();
                    let made: Vec<_> = all.iter().filter(|(_, o)| *o == owner).map(|(id, _)| *id).collect();
                    proptest::prop_assert_eq!(found, made);
                }
            }
        }
    }
}
