use super::*;
use crate::ids::{FlavorResource, ResourceId};
use proptest::prelude::*;

/// The only column of these trees.
const FR: FlavorResource = FlavorResource(0);

fn quota(nominal: i64, borrowing: Option<i64>, lending: Option<i64>) -> Quota {
    Quota { nominal: Amount(nominal), borrowing: borrowing.map(Amount), lending: lending.map(Amount) }
}

fn leaf(name: &str, parent: &str, q: Quota) -> NodeSpec {
    NodeSpec {
        name: name.into(),
        parent: parent.into(),
        leaf: true,
        active: true,
        weight: 1.0,
        quotas: vec![(FR, q)],
    }
}

fn cohort(name: &str, parent: &str, q: Option<Quota>) -> NodeSpec {
    let quotas = q.into_iter().map(|q| (FR, q)).collect();
    NodeSpec { leaf: false, quotas, ..leaf(name, parent, Quota::default()) }
}

/// What is lent and what may be borrowed (Kueue `available` and `potentialAvailable` in
/// `pkg/cache/scheduler/resource_node.go`), worked out by hand.
#[test]
fn lending_example() {
    let mut t = Tree::build(
        vec![leaf("a", "pool", quota(10, None, Some(4))), leaf("b", "pool", quota(5, None, None))],
        vec![ResourceId(0)],
    );
    t.add(NodeId(0), FR, Amount(7));
    let all = [
        t.subtree_quota(NodeId(2), FR),
        t.available(NodeId(1), FR),
        t.available(NodeId(0), FR),
        t.potential(NodeId(0), FR),
        t.potential(NodeId(1), FR),
    ];
    assert_eq!(all.map(|a| a.0), [9, 8, 8, 15, 9]);
}

/// Shares by weight (Kueue `dominantResourceShare` in `pkg/cache/scheduler/fair_sharing.go`), worked out by hand.
#[test]
fn share_example() {
    let mut specs =
        vec![leaf("a", "pool", quota(10, None, Some(4))), leaf("b", "pool", quota(5, None, None))];
    for (weight, want) in [(1.0, 334), (2.0, 167), (0.0, i64::MAX)] {
        specs[1].weight = weight;
        let mut t = Tree::build(specs.clone(), vec![ResourceId(0)]);
        t.add(NodeId(1), FR, Amount(8));
        assert_eq!(DominantResourceShare.share(&t, NodeId(1)).rounded(), want);
        assert_eq!(DominantResourceShare.share(&t, NodeId(0)).rounded(), 0);
    }
}

#[test]
fn heights_count_from_the_farthest_leaf() {
    let t = Tree::build(
        vec![
            leaf("q", "low", quota(1, None, None)),
            leaf("r", "top", quota(1, None, None)),
            cohort("low", "mid", None),
            cohort("mid", "top", None),
            cohort("alone", "", None),
        ],
        vec![ResourceId(0)],
    );
    let height = |name: &str| t.nodes().find(|(_, n)| n.name == name).map(|(_, n)| n.height);
    assert_eq!(["q", "low", "mid", "top", "alone"].map(height), [0, 1, 2, 3, 0].map(Some));
    assert_eq!(t.borrow_level(NodeId(0), FR, Amount(1)), (0, true));
    assert_eq!(t.borrow_level(NodeId(0), FR, Amount(2)), (3, false));
}

#[test]
fn cycles_have_no_parents() {
    let t = Tree::build(
        vec![
            leaf("q", "a", quota(1, None, None)),
            cohort("a", "b", None),
            cohort("b", "c", None),
            cohort("c", "b", None),
            leaf("fine", "d", quota(1, None, None)),
        ],
        vec![ResourceId(0)],
    );
    let cyclic: Vec<bool> = t.nodes().map(|(_, n)| n.cyclic).collect();
    assert_eq!(cyclic, [true, true, true, true, false, false]);
    assert!(t.nodes().filter(|(_, n)| n.cyclic).all(|(_, n)| n.parent.is_none()));
}

/// Plain recursion after Kueue `pkg/cache/scheduler/resource_node.go`, over the specs.
struct Plain<'a> {
    specs: &'a [NodeSpec],
    usage: &'a [i64],
}

impl Plain<'_> {
    fn quota(&self, n: usize) -> Quota {
        self.specs[n].quotas.first().map(|(_, q)| *q).unwrap_or_default()
    }
    fn children(&self, n: usize) -> Vec<usize> {
        (0..self.specs.len()).filter(|&c| self.specs[c].parent == self.specs[n].name).collect()
    }
    fn parent(&self, n: usize) -> Option<usize> {
        self.specs.iter().position(|s| !s.leaf && s.name == self.specs[n].parent)
    }
    fn subtree(&self, n: usize) -> i64 {
        let lent: i64 = if self.specs[n].leaf {
            0
        } else {
            self.children(n).into_iter().map(|c| self.subtree(c) - self.local(c)).sum()
        };
        self.quota(n).nominal.0 + lent
    }
    fn local(&self, n: usize) -> i64 {
        self.quota(n).lending.map_or(0, |l| (self.subtree(n) - l.0).max(0))
    }
    fn used(&self, n: usize) -> i64 {
        if self.specs[n].leaf {
            return self.usage[n];
        }
        self.children(n).into_iter().map(|c| (self.used(c) - self.local(c)).max(0)).sum()
    }
    fn available(&self, n: usize) -> i64 {
        let Some(p) = self.parent(n) else { return self.subtree(n) - self.used(n) };
        let mut up = self.available(p);
        if let Some(limit) = self.quota(n).borrowing {
            let in_parent = (self.used(n) - self.local(n)).max(0);
            up = up.min(self.subtree(n) - self.local(n) - in_parent + limit.0);
        }
        (self.local(n) - self.used(n)).max(0) + up
    }
    fn potential(&self, n: usize) -> i64 {
        let Some(p) = self.parent(n) else { return self.subtree(n) };
        let all = self.local(n) + self.potential(p);
        self.quota(n).borrowing.map_or(all, |l| all.min(self.subtree(n) + l.0))
    }
}

fn any_quota() -> impl Strategy<Value = Quota> {
    (0..20i64, proptest::option::of(0..10i64), proptest::option::of(0..10i64))
        .prop_map(|(n, b, l)| quota(n, b, l))
}

/// Cohorts whose parents have smaller numbers, so that there are no cycles, and queues anywhere.
fn any_specs() -> impl Strategy<Value = Vec<NodeSpec>> {
    let cohorts = proptest::collection::vec((any::<proptest::sample::Index>(), any_quota()), 1..6);
    let queues = proptest::collection::vec((any::<proptest::sample::Index>(), any_quota()), 1..8);
    (cohorts, queues).prop_map(|(cohorts, queues)| {
        let mut specs = Vec::new();
        for (i, (up, q)) in cohorts.iter().enumerate() {
            let parent = if i == 0 { String::new() } else { format!("c{}", up.index(i)) };
            specs.push(cohort(&format!("c{i}"), &parent, Some(*q)));
        }
        for (i, (up, q)) in queues.iter().enumerate() {
            specs.push(leaf(&format!("q{i}"), &format!("c{}", up.index(cohorts.len())), *q));
        }
        specs
    })
}

proptest! {
    /// After any sequence of additions and removals the tree says what plain recursion says, and undoing
    /// all of it leaves nothing behind.
    #[test]
    fn tree_equals_plain_recursion(
        specs in any_specs(),
        ops in proptest::collection::vec((any::<proptest::sample::Index>(), 0..15i64, any::<bool>()), 0..40),
    ) {
        let mut tree = Tree::build(specs.clone(), vec![ResourceId(0)]);
        let leaves: Vec<usize> = (0..specs.len()).filter(|&i| specs[i].leaf).collect();
        let mut usage = vec![0i64; specs.len()];
        let start = tree.mark();
        for (which, amount, add) in ops {
            let n = leaves[which.index(leaves.len())];
            if add {
                usage[n] += amount;
                tree.add(NodeId::new(n), FR, Amount(amount));
            } else {
                let amount = amount.min(usage[n]);
                usage[n] -= amount;
                tree.remove(NodeId::new(n), FR, Amount(amount));
            }
            let plain = Plain { specs: &specs, usage: &usage };
            for i in 0..specs.len() {
                let id = NodeId::new(i);
                prop_assert_eq!(tree.subtree_quota(id, FR).0, plain.subtree(i));
                prop_assert_eq!(tree.usage(id, FR).0, plain.used(i));
                prop_assert_eq!(tree.available_signed(id, FR).0, plain.available(i));
                prop_assert_eq!(tree.potential(id, FR).0, plain.potential(i));
            }
            prop_assert!(tree.check_usage());
        }
        tree.rollback(start);
        prop_assert!(tree.nodes().all(|(n, _)| tree.usage(n, FR) == Amount::ZERO));
    }

    /// Amounts near the limits come and go in any order: nothing is left of those that went, in no cohort.
    #[test]
    fn usage_beyond_the_limits_can_be_taken_away(
        specs in any_specs(),
        amounts in proptest::collection::vec((any::<proptest::sample::Index>(), any_amount()), 1..20),
        order in proptest::collection::vec(any::<proptest::sample::Index>(), 20),
    ) {
        let mut tree = Tree::build(specs.clone(), vec![ResourceId(0)]);
        let leaves: Vec<usize> = (0..specs.len()).filter(|&i| specs[i].leaf).collect();
        let mut held: Vec<(NodeId, Amount)> =
            amounts.iter().map(|(i, a)| (NodeId::new(leaves[i.index(leaves.len())]), *a)).collect();
        for &(n, a) in &held {
            tree.add(n, FR, a);
        }
        for i in order {
            if held.is_empty() {
                break;
            }
            let (n, a) = held.swap_remove(i.index(held.len()));
            tree.remove(n, FR, a);
            let mut fresh = Tree::build(specs.clone(), vec![ResourceId(0)]);
            held.iter().for_each(|&(n, a)| fresh.add(n, FR, a));
            for (n, _) in fresh.nodes() {
                prop_assert_eq!(tree.usage(n, FR), fresh.usage(n, FR));
            }
            prop_assert!(tree.check_usage());
        }
    }
}

fn any_amount() -> impl Strategy<Value = Amount> {
    let near = |at: i64| (0..20i64).prop_map(move |d| Amount(at - d));
    prop_oneof![near(i64::MAX), near(i64::MAX / 2), near(20)]
}
