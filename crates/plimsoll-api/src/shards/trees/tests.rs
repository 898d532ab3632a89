use super::*;

/// What was seen by the process of shard `a`, which has led what names it for long.
fn trees() -> Trees {
    Trees::new("a")
}

impl Trees {
    fn see(&mut self, object: TreeObject, above: &str, label: &str, led_by: &str, moves_to: &str) {
        self.count += 1;
        let moves_to = (!moves_to.is_empty()).then(|| moves_to.to_owned());
        let marks = Marks { label: label.into(), led_by: led_by.into(), moves_to };
        let version = self.count.to_string();
        self.put(object, above, marks, &version);
    }

    fn cohort(&mut self, name: &str, above: &str, label: &str, led_by: &str) {
        self.see(TreeObject::cohort(name), above, label, led_by, "");
    }

    fn queue(&mut self, name: &str, above: &str, label: &str, led_by: &str) {
        self.see(TreeObject::cluster_queue(name), above, label, led_by, "");
    }

    /// Everything has been seen.
    fn settle(&mut self) -> Changed {
        self.found(self.count);
        self.resolve()
    }

    fn keeper(&self, queue: &str) -> String {
        self.of_cluster_queue(queue).keeper().to_owned()
    }

    fn decides(&self, queue: &str) -> bool {
        self.of_cluster_queue(queue).decides("a")
    }

    /// Objects that are written to, and what is written.
    fn words(&self) -> Vec<(String, String)> {
        let word = |step: TreeStep| {
            let Request::Patch { body, .. } = step.request("a") else { panic!("{step:?}") };
            assert_eq!(body["metadata"]["resourceVersion"], *step.version);
            let (annotations, labels) = (&body["metadata"]["annotations"], &body["metadata"]["labels"]);
            (step.object.name, format!("{annotations} {labels}"))
        };
        self.steps().into_iter().map(word).collect()
    }
}

#[test]
fn one_label_is_the_shard_of_the_whole_tree() {
    let mut trees = trees();
    trees.cohort("root", "", "a", "");
    trees.cohort("team", "root", "", "");
    trees.queue("q", "team", "", "");
    trees.queue("alone", "", "b", "");
    trees.queue("plain", "", "", "");
    // The root has no object.
    trees.queue("left", "implicit", "b", "");
    trees.queue("right", "implicit", "", "");
    let changed = trees.settle();
    let keepers = ["q", "alone", "plain", "right", "unknown"].map(|queue| trees.keeper(queue));
    assert_eq!(keepers, ["a", "b", "default", "b", "default"]);
    assert_eq!((trees.of_cohort("team").keeper(), trees.of_cohort("implicit").keeper()), ("a", "b"));
    let named: Vec<&str> = changed.handed.iter().map(String::as_str).collect();
    assert_eq!(named, ["alone", "left", "q", "right"], "what the default shard has is as before");
    assert_eq!(trees.resolve(), Changed::default(), "nothing has changed since");
    // It is led by nobody before all objects say so.
    assert!(!trees.decides("q"));
    let claim = r#"{"plimsoll.dev/led-by":"a"} null"#.to_owned();
    let all = ["root", "team", "q"].map(|name| (name.to_owned(), claim.clone()));
    assert_eq!(trees.words(), all);
    trees.cohort("root", "", "a", "a");
    trees.cohort("team", "root", "", "a");
    trees.queue("q", "team", "", "a");
    trees.resolve();
    assert!(!trees.decides("q") && trees.steps().is_empty(), "not everything was seen");
    assert!(!trees.of_cluster_queue("q").controls("a"), "the leader before may have admitted workloads");
    let number = trees.unknown().unwrap();
    trees.queue("late", "team", "", "a");
    trees.found(number);
    trees.resolve();
    assert!(!trees.decides("q"), "one has come since");
    let changed = trees.settle();
    assert!(trees.decides("q") && trees.decides("late") && changed.handed.is_empty());
    assert!(trees.of_cluster_queue("q").controls("a"));
    assert_eq!(changed.controlled.iter().collect::<Vec<_>>(), ["late"]);
    assert_eq!(trees.unknown(), None);
}

#[test]
fn a_tree_whose_objects_disagree_belongs_to_nobody() {
    let mut trees = trees();
    trees.cohort("root", "", "a", "");
    trees.queue("q", "root", "b", "");
    trees.queue("other", "root", "", "");
    trees.settle();
    let owner = trees.of_cluster_queue("other");
    let why = "a (Cohort root), b (ClusterQueue q)".to_owned();
    assert_eq!(owner.stop(), Some(&ShardStop::Conflict(why)));
    assert!(["a", "b", "default"].iter().all(|name| !owner.is(name)));
    assert_eq!(owner.keeper(), "default");
    // The label is mended: all of it is the root's again.
    trees.queue("q", "root", "", "");
    let changed = trees.settle();
    assert_eq!(changed.cluster_queues.len(), 2);
    assert_eq!(trees.keeper("other"), "a");
    trees.queue("q", "root", "default", "");
    trees.settle();
    assert!(!trees.of_cluster_queue("q").is("default"), "the name of the default shard is a name, too");
}

#[test]
fn trees_are_joined_cut_and_removed() {
    let mut trees = trees();
    trees.cohort("a", "", "a", "a");
    trees.cohort("b", "", "b", "b");
    trees.queue("own", "a", "", "a");
    trees.queue("q", "b", "", "b");
    trees.settle();
    assert!(trees.keeper("q") == "b" && trees.decides("own"));
    trees.cohort("b", "a", "b", "b");
    trees.settle();
    assert!(matches!(trees.of_cluster_queue("own").stop(), Some(ShardStop::Conflict(_))));
    trees.cohort("b", "a", "", "b");
    trees.settle();
    assert!(!trees.decides("own"), "the other leader has not given its part yet");
    assert_eq!(trees.awaited().len(), 2);
    trees.cohort("b", "a", "", "a");
    trees.queue("q", "b", "", "a");
    trees.settle();
    assert!(trees.decides("own") && trees.decides("q"));
    trees.remove(&TreeObject::cohort("a"));
    trees.settle();
    assert_eq!(trees.of_cohort("a").keeper(), "a", "it is led with what is left of it");
    trees.remove(&TreeObject::cluster_queue("q"));
    assert!(trees.resolve().cluster_queues.contains("q"));
    assert!(!trees.has_cluster_queue("q"));
    trees.cohort("b", "a", "", "default");
    trees.queue("own", "a", "", "default");
    trees.settle();
    assert_eq!(trees.of_cohort("a").keeper(), "default", "nothing says its shard any more");
}

#[test]
fn a_cycle_of_cohorts_is_one_tree() {
    let mut trees = trees();
    trees.cohort("x", "y", "", "");
    trees.cohort("y", "z", "a", "");
    trees.cohort("z", "x", "", "");
    trees.cohort("below", "x", "", "");
    trees.queue("q", "below", "", "");
    trees.settle();
    for name in ["x", "y", "z", "below"] {
        assert_eq!(trees.of_cohort(name).keeper(), "a", "{name}");
    }
    assert_eq!(trees.keeper("q"), "a");
}

/// The object that asks for a move is given last, with its label and without its annotation.
#[test]
fn a_tree_is_given_object_by_object() {
    let mut trees = trees();
    let (root, q) = (TreeObject::cohort("root"), TreeObject::cluster_queue("q"));
    trees.see(root.clone(), "", "b", "a", "a");
    trees.see(q.clone(), "root", "", "a", "");
    trees.settle();
    assert!(trees.decides("q"), "it is asked to stay, whatever the label says");
    let stays = r#"{"plimsoll.dev/led-by":"a","plimsoll.dev/move-to":null} {"plimsoll.dev/shard":"a"}"#;
    assert_eq!(trees.words(), [("root".to_owned(), stays.to_owned())]);
    trees.see(root.clone(), "", "a", "a", "a");
    trees.resolve();
    let stays = r#"{"plimsoll.dev/led-by":"a","plimsoll.dev/move-to":null} null"#;
    assert_eq!(trees.words(), [("root".to_owned(), stays.to_owned())]);
    trees.see(root.clone(), "", "a", "a", "b");
    trees.resolve();
    assert_eq!(
        trees.of_cluster_queue("q").stop(),
        Some(&ShardStop::Leaves("its tree moves to shard b".into()))
    );
    trees.put_loan("l", Some(&["root".into(), "elsewhere".into()]));
    trees.resolve();
    assert!(trees.steps().is_empty(), "it lends");
    assert!(
        matches!(trees.of_cluster_queue("q").stop(), Some(ShardStop::Leaves(why)) if why.contains(": l ("))
    );
    trees.put_loan("l", None);
    trees.resolve();
    let give = r#"{"plimsoll.dev/led-by":"b"} null"#.to_owned();
    assert_eq!(trees.words(), [("q".to_owned(), give.clone())]);
    assert!(trees.of_cluster_queue("q").controls("a"));
    trees.gives(&trees.steps()[0].clone());
    trees.resolve();
    assert!(!trees.of_cluster_queue("q").controls("a") && trees.keeper("q") == "a", "b may lead it");
    // The move is called off: the write may be carried out, and is repeated until it was.
    trees.see(root.clone(), "", "a", "a", "");
    trees.resolve();
    assert!(!trees.decides("q"));
    assert_eq!(trees.words(), [("q".to_owned(), give)]);
    trees.see(root.clone(), "", "a", "a", "b");
    trees.see(q.clone(), "root", "", "b", "");
    let changed = trees.resolve();
    assert!(changed.handed.contains("q") && trees.keeper("q") == "b");
    let last = r#"{"plimsoll.dev/led-by":"b","plimsoll.dev/move-to":null} {"plimsoll.dev/shard":"b"}"#;
    assert_eq!(trees.words(), [("root".to_owned(), last.to_owned())]);
    trees.see(root, "", "b", "b", "");
    trees.resolve();
    assert!(trees.steps().is_empty());
}

/// The next list shows its own name again: what the other shard's leader wrote in between may not have been seen.
#[test]
fn a_tree_that_was_given_away_and_back_is_looked_for_again() {
    let mut trees = trees();
    trees.queue("q", "", "b", "a");
    trees.settle();
    assert!(!trees.is_giving());
    let (give, number) = (trees.steps().remove(0), trees.count);
    trees.gives(&give);
    trees.resolve();
    assert!(trees.is_giving());
    trees.queue("q", "", "a", "a");
    trees.found(number);
    trees.resolve();
    assert!(!trees.is_giving() && !trees.decides("q") && trees.unknown().is_some());
    trees.settle();
    assert!(trees.decides("q"));
}

#[test]
fn a_tree_without_a_label_gets_one_and_loses_it() {
    let mut trees = Trees::new(DEFAULT);
    let q = TreeObject::cluster_queue("q");
    trees.see(q.clone(), "", "", DEFAULT, "b");
    trees.found(9);
    trees.resolve();
    let step = trees.steps().remove(0);
    let Request::Patch { body, .. } = step.request(DEFAULT) else { panic!() };
    assert_eq!(body["metadata"]["labels"], json!({"plimsoll.dev/shard": "b"}));
    let mut trees = Trees::new("b");
    trees.see(q, "", "b", "b", DEFAULT);
    trees.found(9);
    trees.resolve();
    let step = trees.steps().remove(0);
    let Request::Patch { body, .. } = step.request("b") else { panic!() };
    assert_eq!(body["metadata"]["labels"], json!({"plimsoll.dev/shard": null}));
}

/// A write that gives the root away meets another one: until its newer version is known it has yet to go.
#[test]
fn the_object_that_asks_for_a_move_goes_last_also_after_a_conflict() {
    let mut trees = trees();
    trees.cohort("root", "", "a", "a");
    trees.see(TreeObject::cluster_queue("x"), "root", "", "a", "b");
    trees.queue("z", "root", "", "a");
    trees.settle();
    let given = trees.steps();
    assert_eq!(given.iter().map(|s| s.object.name.as_str()).collect::<Vec<_>>(), ["root", "z"]);
    given.iter().for_each(|step| trees.gives(step));
    trees.resolve();
    trees.queue("z", "root", "", "b");
    trees.cohort("root", "", "a", "a");
    trees.resolve();
    assert_eq!(trees.words(), [], "the root has to go before x");
    trees.settle();
    assert_eq!(trees.words().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["root"]);
    trees.cohort("root", "", "b", "b");
    trees.settle();
    assert_eq!(trees.words().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["x"]);
}

/// Its label names the next shard already, and its loans have to end before it goes there.
#[test]
fn a_cohort_without_an_object_is_led_with_its_queues() {
    let mut trees = trees();
    trees.put_loan("loan", Some(&["other".to_owned(), "implicit".to_owned()]));
    trees.queue("q", "implicit", "b", "a");
    trees.settle();
    let owner = trees.of_cohort("implicit");
    assert_eq!((owner.keeper(), owner.decides("a"), owner.may_end_loans("a")), ("a", false, true));
    trees.queue("late", "implicit", "", "");
    trees.settle();
    assert_eq!(trees.of_cohort("implicit").keeper(), "b", "they do not agree");
}
