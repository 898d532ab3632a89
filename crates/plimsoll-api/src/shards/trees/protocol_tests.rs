//! Trees that move between shards, over a model of the API: watches that are late or skip versions, writes that are carried out late or
//! never, administrators who change labels, annotations and the structure at any time, and processes that end. A leader that admits
//! must have seen what others admitted in the tree; and in the end each tree has the leader that its labels name.

use std::collections::BTreeMap;

use plimsoll_state::rng::Rng;

use super::*;

const SHARDS: [&str; 3] = [DEFAULT, "a", "b"];
const COHORT_COUNT: u32 = 4;
const QUEUE_COUNT: u32 = 5;

#[derive(Clone, Debug, Default)]
struct Object {
    above: String,
    marks: Marks,
    version: u64,
}

/// What the API server has.
#[derive(Debug, Default)]
struct Server {
    version: u64,
    objects: BTreeMap<TreeObject, Object>,
    log: Vec<(TreeObject, Option<Object>)>,
    /// ClusterQueues, and numbers of the shards whose leaders admitted there.
    admissions: Vec<(String, usize)>,
}

impl Server {
    fn change(&mut self, object: &TreeObject, change: impl FnOnce(&mut Object)) {
        let mut next = self.objects.get(object).cloned().unwrap_or_default();
        change(&mut next);
        self.version += 1;
        next.version = self.version;
        self.objects.insert(object.clone(), next.clone());
        self.log.push((object.clone(), Some(next)));
    }

    fn delete(&mut self, object: &TreeObject) {
        if self.objects.remove(object).is_some() {
            self.version += 1;
            self.log.push((object.clone(), None));
        }
    }

    /// Carries out a write, if the object has the version that it names.
    fn carry_out(&mut self, write: &Write) {
        let step = &write.step;
        if self.objects.get(&step.object).is_none_or(|known| known.version.to_string() != step.version) {
            return;
        }
        let Request::Patch { body, .. } = step.request(SHARDS[write.shard]) else { panic!("{step:?}") };
        let (annotations, labels) = (&body["metadata"]["annotations"], &body["metadata"]["labels"]);
        self.change(&step.object, |object| {
            object.marks.led_by = annotations[LED_BY].as_str().unwrap().to_owned();
            if annotations.get(MOVE_TO).is_some() {
                object.marks.moves_to = None;
            }
            if let Some(label) = labels.get(LABEL) {
                object.marks.label = label.as_str().unwrap_or_default().to_owned();
            }
        });
    }
}

/// The leader of a shard.
#[derive(Debug)]
struct Process {
    trees: Trees,
    /// How much of the log of objects it has seen, and of that of admissions.
    seen: (usize, usize),
    /// What it looks for: the number of [`Trees::unknown`], and how long the logs were when they were listed.
    seeks: Option<(u64, Option<(usize, usize)>)>,
    /// ClusterQueues in which an admission is under way.
    under_way: Vec<String>,
}

impl Process {
    /// One that has listed everything and led nothing.
    fn new(shard: usize, server: &Server) -> Self {
        let trees = Trees::new(SHARDS[shard]);
        let mut process = Self { trees, seen: (0, 0), seeks: None, under_way: Vec::new() };
        process.list(server);
        process
    }

    fn see(&mut self, object: &TreeObject, state: Option<&Object>) {
        match state {
            Some(Object { above, marks, version }) => {
                self.trees.put(object.clone(), above, marks.clone(), &version.to_string());
            }
            None => self.trees.remove(object),
        }
    }

    fn list(&mut self, server: &Server) {
        let gone = self.trees.entries.keys().filter(|o| !server.objects.contains_key(o)).cloned();
        for object in gone.collect::<Vec<_>>() {
            self.see(&object, None);
        }
        for (object, state) in &server.objects {
            self.see(object, Some(state));
        }
        self.trees.resolve();
        self.seen.0 = server.log.len();
    }

    fn watch(&mut self, server: &Server, events: usize) {
        for (object, state) in server.log.iter().skip(self.seen.0).take(events) {
            self.see(object, state.as_ref());
            self.trees.resolve();
            self.seen.0 += 1;
        }
    }

    /// Takes a step towards having seen what was written before its objects named it.
    fn seek(&mut self, server: &Server) {
        match self.seeks {
            None => self.seeks = self.trees.unknown().map(|number| (number, None)),
            Some((number, None)) => {
                self.seeks = Some((number, Some((server.log.len(), server.admissions.len()))));
            }
            Some((number, Some((objects, admissions)))) => {
                if self.seen.0 >= objects && self.seen.1 >= admissions {
                    self.seeks = None;
                    self.trees.found(number);
                    self.trees.resolve();
                }
            }
        }
    }

    fn decides(&self, shard: usize, queue: &str) -> bool {
        self.trees.has_cluster_queue(queue) && self.trees.of_cluster_queue(queue).decides(SHARDS[shard])
    }
}

#[derive(Debug)]
struct Write {
    shard: usize,
    step: TreeStep,
}

struct World {
    rng: Rng,
    server: Server,
    leaders: Vec<Process>,
    writes: Vec<Write>,
}

impl World {
    fn new(seed: u64) -> Self {
        let (mut rng, mut server) = (Rng::new(seed), Server::default());
        for number in 0..COHORT_COUNT {
            if rng.below(4) > 0 {
                server.change(&TreeObject::cohort(&format!("k{number}")), |_| {});
            }
        }
        for number in 0..QUEUE_COUNT {
            let above = format!("k{}", rng.below(COHORT_COUNT));
            server.change(&TreeObject::cluster_queue(&format!("q{number}")), |object| object.above = above);
        }
        let leaders = (0..SHARDS.len()).map(|shard| Process::new(shard, &server)).collect();
        Self { rng, server, leaders, writes: Vec::new() }
    }

    fn below(&mut self, count: usize) -> usize {
        self.rng.below(u32::try_from(count).unwrap()) as usize
    }

    fn object(&mut self) -> TreeObject {
        match self.rng.below(2) {
            0 => TreeObject::cohort(&format!("k{}", self.rng.below(COHORT_COUNT))),
            _ => TreeObject::cluster_queue(&format!("q{}", self.rng.below(QUEUE_COUNT))),
        }
    }

    fn happen(&mut self) {
        let shard = self.below(SHARDS.len());
        match self.rng.below(160) {
            0..=39 => {
                let events = 1 + self.below(8);
                self.leaders[shard].watch(&self.server, events);
            }
            40 => self.leaders[shard].list(&self.server),
            41..=60 => self.begin_writes(shard),
            61..=85 if !self.writes.is_empty() => {
                let number = self.below(self.writes.len());
                let write = self.writes.swap_remove(number);
                if self.rng.below(4) > 0 {
                    self.server.carry_out(&write);
                }
            }
            86..=105 => {
                let queue = format!("q{}", self.rng.below(QUEUE_COUNT));
                self.begin_admission(shard, queue);
            }
            106..=116 => {
                if let Some(queue) = self.leaders[shard].under_way.pop() {
                    self.server.admissions.push((queue, shard));
                }
            }
            117..=125 => {
                let admissions = self.server.admissions.len() - self.leaders[shard].seen.1;
                self.leaders[shard].seen.1 += self.below(admissions + 1);
            }
            126..=156 => self.leaders[shard].seek(&self.server),
            157 if self.rng.below(2) == 0 => self.end(shard),
            158 => self.administrate(),
            _ => {}
        }
    }

    /// As the runtime does: nothing is given away while an admission is under way.
    fn begin_writes(&mut self, shard: usize) {
        for step in self.leaders[shard].trees.steps() {
            let leader = &mut self.leaders[shard];
            let waits = matches!(step.change, TreeChange::Give(_)) && !leader.under_way.is_empty();
            if waits || self.rng.below(2) == 0 {
                continue;
            }
            leader.trees.gives(&step);
            leader.trees.resolve();
            self.writes.push(Write { shard, step });
        }
    }

    fn begin_admission(&mut self, shard: usize, queue: String) {
        let leader = &self.leaders[shard];
        if !leader.decides(shard, &queue) {
            return;
        }
        let (tree, _) = leader.trees.around(&TreeObject::cluster_queue(&queue));
        let unseen = self.server.admissions.iter().skip(leader.seen.1);
        let unseen: Vec<_> = unseen.filter(|(queue, by)| *by != shard && tree.contains(queue)).collect();
        assert!(unseen.is_empty(), "{} has not seen {unseen:?}", SHARDS[shard]);
        for (other, leader) in self.leaders.iter().enumerate().filter(|(other, _)| *other != shard) {
            let both = leader.under_way.iter().any(|queue| tree.contains(queue));
            assert!(!both, "{} and {} admit in {tree:?}", SHARDS[shard], SHARDS[other]);
        }
        self.leaders[shard].under_way.push(queue);
    }

    /// The process ends, and the next one has its Lease. Where a write may be carried out, that expires first.
    fn end(&mut self, shard: usize) {
        let crashes = self.rng.below(2) == 0;
        while let Some(queue) = self.leaders[shard].under_way.pop() {
            self.server.admissions.push((queue, shard));
        }
        if crashes || self.leaders[shard].trees.is_giving() {
            let (own, others) = std::mem::take(&mut self.writes).into_iter().partition(|w| w.shard == shard);
            self.writes = others;
            let own: Vec<Write> = own;
            for write in own {
                if self.rng.below(2) == 0 {
                    self.server.carry_out(&write);
                }
            }
        }
        self.leaders[shard] = Process::new(shard, &self.server);
    }

    fn administrate(&mut self) {
        let (object, shard) = (self.object(), SHARDS[self.below(SHARDS.len())].to_owned());
        let above = format!("k{}", self.rng.below(COHORT_COUNT));
        let (what, server) = (self.rng.below(16), &mut self.server);
        if !server.objects.contains_key(&object) {
            // It is made, perhaps again.
            return server.change(&object, |object| {
                object.marks.label = if what < 2 { shard } else { String::new() };
                object.above = if what % 2 == 0 { above } else { String::new() };
            });
        }
        match what {
            0..=4 => server.change(&object, |object| object.marks.moves_to = Some(shard)),
            5 => server.change(&object, |object| object.marks.moves_to = None),
            6 => server.change(&object, |object| object.marks.label = shard),
            7..=10 => {
                // All that have a label get the same.
                let labelled = server.objects.iter().filter(|(_, known)| !known.marks.label.is_empty());
                for other in labelled.map(|(other, _)| other.clone()).collect::<Vec<_>>() {
                    server.change(&other, |object| object.marks.label.clone_from(&shard));
                }
            }
            11 => server.change(&object, |object| object.marks.label = String::new()),
            12 | 13 => server.change(&object, |object| object.above = above),
            14 => server.change(&object, |object| object.above = String::new()),
            _ => self.delete(&object),
        }
    }

    /// An object is deleted. Its leader has released the finalizer of a ClusterQueue, after it stopped admitting there.
    fn delete(&mut self, object: &TreeObject) {
        let led_by = self.server.objects.get(object).map(|known| known.marks.led_by.clone());
        let leader = SHARDS.iter().position(|shard| Some(*shard) == led_by.as_deref());
        let holds = |leader: &usize| object.kind == TreeKind::ClusterQueue && *leader < SHARDS.len();
        let Some(leader) = leader.filter(holds) else { return self.server.delete(object) };
        if !self.leaders[leader].under_way.contains(&object.name) {
            self.server.delete(object);
            let events = self.server.log.len();
            self.leaders[leader].watch(&self.server, events);
        }
    }

    /// Labels agree, nothing fails any more: all trees get the leaders that are named.
    fn settle(&mut self) {
        let mut all = Trees::new("");
        for (object, state) in &self.server.objects {
            all.put(object.clone(), &state.above, Marks::default(), "1");
        }
        all.resolve();
        for object in all.entries.keys() {
            self.server
                .change(object, |object| (object.marks.label, object.marks.moves_to) = Default::default());
        }
        let mut named = BTreeMap::new();
        for (root, tree) in all.trees.iter().filter(|(_, tree)| !tree.objects.is_empty()) {
            let (shard, by_move) = (SHARDS[self.below(SHARDS.len())], self.rng.below(2) == 0);
            named.insert(root.clone(), shard);
            let asked = &tree.objects[self.below(tree.objects.len())];
            self.server.change(asked, |object| match by_move {
                true => object.marks.moves_to = Some(shard.to_owned()),
                false => object.marks.label = shard.to_owned(),
            });
        }
        for _ in 0..100 {
            for shard in 0..SHARDS.len() {
                while let Some(queue) = self.leaders[shard].under_way.pop() {
                    self.server.admissions.push((queue, shard));
                }
                self.leaders[shard].watch(&self.server, usize::MAX);
                self.leaders[shard].seen.1 = self.server.admissions.len();
                self.leaders[shard].seek(&self.server);
                self.begin_writes(shard);
            }
            for write in std::mem::take(&mut self.writes) {
                self.server.carry_out(&write);
            }
        }
        for (object, root) in all.roots.iter().filter(|(object, _)| object.kind == TreeKind::ClusterQueue) {
            let deciding = |shard: &usize| self.leaders[*shard].decides(*shard, &object.name);
            let deciding: Vec<&str> = (0..SHARDS.len()).filter(deciding).map(|shard| SHARDS[shard]).collect();
            assert_eq!(deciding, [named[root]], "{object}: {:#?}", self.server.objects);
        }
        assert!(self.leaders.iter().all(|leader| leader.trees.steps().is_empty()));
    }
}

#[test]
fn a_tree_has_one_leader_at_each_time_and_the_named_one_in_the_end() {
    let (mut admissions, mut changes) = (0, 0);
    for seed in 0..100 {
        let mut world = World::new(seed);
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..2_500).for_each(|_| world.happen());
            world.settle();
        }));
        assert!(played.is_ok(), "seed {seed}");
        // How often a ClusterQueue has changed its leader.
        let mut last: BTreeMap<&str, usize> = BTreeMap::new();
        for (queue, by) in &world.server.admissions {
            changes += usize::from(last.insert(queue, *by).is_some_and(|before| before != *by));
        }
        admissions += world.server.admissions.len();
    }
    // They are worth playing.
    assert!(admissions > 1_000 && changes > 100, "{admissions} admissions, {changes} changes of leaders");
}
