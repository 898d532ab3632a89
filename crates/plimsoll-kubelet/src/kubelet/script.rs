//! What a simulated container does: how long it runs and how it ends, read from its command.

use super::view::{Container, PodView};
use crate::time::{Nanos, SECOND, parse_span};

/// Annotation: how long every app container runs (`90`, `1m30s`).
pub const DURATION: &str = "plimsoll.dev/duration";
/// Annotation: exit code of every app container.
pub const EXIT_CODE: &str = "plimsoll.dev/exit-code";
/// Annotation: time from the binding to the start of the first container.
pub const START_DELAY: &str = "plimsoll.dev/start-delay";

/// How long a container runs that says nothing about it.
pub const DEFAULT_DURATION: Nanos = 5 * SECOND;
/// Time from the binding to the start of the first container, unless annotated.
pub const DEFAULT_START_DELAY: Nanos = SECOND / 2;

/// What a container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    /// How long it runs; `None`: until it is stopped.
    pub duration: Option<Nanos>,
    /// How it ends.
    pub exit_code: i32,
}

/// What an app container of `pod` does: annotations first, then its command.
///
/// A container that names no duration runs [`DEFAULT_DURATION`], or for ever under restartPolicy `Always`,
/// where ending would only mean a crash loop.
pub fn app(pod: &PodView, container: &Container) -> Script {
    let written = read(container);
    let forever = pod.spec.restart_policy == "Always" || pod.spec.restart_policy.is_empty();
    let mut script =
        written.unwrap_or(Script { duration: (!forever).then_some(DEFAULT_DURATION), exit_code: 0 });
    if let Some(span) = pod.metadata.annotations.get(DURATION).and_then(|t| parse_span(t)) {
        script.duration = Some(span);
    }
    if let Some(code) = pod.metadata.annotations.get(EXIT_CODE).and_then(|t| t.trim().parse().ok()) {
        script.exit_code = code;
        script.duration = script.duration.or(Some(DEFAULT_DURATION));
    }
    script
}

/// What an init container does; one that says nothing is done at once.
pub fn init(container: &Container) -> Script {
    read(container).unwrap_or(Script { duration: Some(0), exit_code: 0 })
}

/// Time from the binding to the start of the first container.
pub fn start_delay(pod: &PodView) -> Nanos {
    let written = pod.metadata.annotations.get(START_DELAY).and_then(|t| parse_span(t));
    written.unwrap_or(DEFAULT_START_DELAY)
}

/// Reads `sleep N`, `sh -c "...sleep N..."`, `true`, `false`, `pause`, `tail -f`; `None` if the command is none of them.
fn read(container: &Container) -> Option<Script> {
    let argv: Vec<&str> = container.command.iter().chain(&container.args).map(String::as_str).collect();
    let Some((program, rest)) = argv.split_first() else {
        // The entry point of the image that Kubernetes' own tests wait with.
        let name = base(&container.image).split([':', '@']).next();
        return (name == Some("pause")).then_some(Script { duration: None, exit_code: 0 });
    };
    match base(program) {
        "sh" | "bash" | "ash" | "dash" => {
            let flag = rest.iter().position(|a| a.starts_with('-') && a.ends_with('c'))?;
            shell(rest.get(flag + 1)?)
        }
        _ => {
            let script = simple(&argv)?;
            Some(Script { duration: script.0, exit_code: script.1.unwrap_or(0) })
        }
    }
}

fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// One simple command: how long it takes and, when it ends the script, with which code.
fn simple(words: &[&str]) -> Option<(Option<Nanos>, Option<i32>)> {
    let (program, rest) = words.split_first()?;
    match base(program) {
        "sleep" => {
            let mut total: Nanos = 0;
            for word in rest {
                if matches!(*word, "inf" | "infinity") {
                    return Some((None, None));
                }
                total = total.saturating_add(parse_span(word)?);
            }
            (!rest.is_empty()).then_some((Some(total), None))
        }
        // `pause` is also what agnhost, the image of Kubernetes' tests, calls it.
        "pause" => Some((None, None)),
        "tail" if rest.iter().any(|w| matches!(*w, "-f" | "-F")) => Some((None, None)),
        "true" => Some((Some(0), None)),
        "false" => Some((Some(0), Some(1))),
        "exit" => Some((Some(0), Some(rest.first().and_then(|w| w.parse().ok()).unwrap_or(0)))),
        _ => None,
    }
}

/// A script: durations of its sleeps add up, the last `exit` decides the code. `None` if there is neither.
fn shell(script: &str) -> Option<Script> {
    let mut duration = Some(0 as Nanos);
    let mut code = 0;
    let mut known = false;
    for statement in script.split([';', '\n', '&', '|']) {
        let words: Vec<&str> = statement.split_whitespace().map(|w| w.trim_matches(['"', '\''])).collect();
        let words = match words.split_first() {
            Some((&"exec", rest)) => rest,
            _ => words.as_slice(),
        };
        if let Some((took, ended)) = simple(words) {
            known = true;
            duration = duration.zip(took).map(|(a, b)| a.saturating_add(b));
            if let Some(ended) = ended {
                code = ended;
            }
            if duration.is_none() || words.first() == Some(&"exit") {
                break;
            }
        }
    }
    known.then_some(Script { duration, exit_code: code })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands() {
        for (command, args, want) in [
            (vec!["sleep", "8"], vec![], Some((Some(8.0), 0))),
            (vec!["/bin/sleep"], vec!["0.5"], Some((Some(0.5), 0))),
            (vec![], vec!["sleep", "2m"], Some((Some(120.0), 0))),
            (vec!["sleep", "1m", "30s"], vec![], Some((Some(90.0), 0))),
            (vec!["sleep", "infinity"], vec![], Some((None, 0))),
            (vec!["sh", "-c", "sleep 3"], vec![], Some((Some(3.0), 0))),
            (vec!["/bin/bash", "-ec"], vec!["echo hi; sleep 3 && exit 7"], Some((Some(3.0), 7))),
            (vec!["sh", "-c"], vec!["echo a\nsleep 1\nsleep 2"], Some((Some(3.0), 0))),
            (vec!["sh", "-c", "exit 3; sleep 9"], vec![], Some((Some(0.0), 3))),
            (vec!["false"], vec![], Some((Some(0.0), 1))),
            (vec![], vec!["pause"], Some((None, 0))),
            (vec!["/pause"], vec![], Some((None, 0))),
            (vec!["tail", "-f", "/dev/null"], vec![], Some((None, 0))),
            (vec!["sh", "-c", "echo up; exec tail -F log"], vec![], Some((None, 0))),
            (vec!["tail", "log"], vec![], None),
            (vec!["python", "train.py"], vec![], None),
            (vec!["sh", "-c", "./run"], vec![], None),
            (vec!["sh", "-c"], vec![], None),
            (vec!["sleep"], vec![], None),
            (vec!["sleep", "soon"], vec![], None),
            (vec![], vec![], None),
        ] {
            let text = |v: &[&str]| v.iter().map(|s| (*s).to_owned()).collect();
            let container = Container { command: text(&command), args: text(&args), ..Default::default() };
            let want = want.map(|(seconds, exit_code)| Script {
                duration: seconds.map(|s: f64| (s * SECOND as f64) as Nanos),
                exit_code,
            });
            assert_eq!(read(&container), want, "{command:?} {args:?}");
        }
    }

    #[test]
    fn the_pause_image_does_not_end() {
        let mut pod = PodView::default();
        pod.spec.restart_policy = "Never".into();
        for (image, ends) in [
            ("registry.k8s.io/pause:3.10", false),
            ("pause", false),
            ("registry.example:5000/pause@sha256:0123", false),
            ("registry.example:5000/pauses", true),
            ("busybox", true),
        ] {
            let container = Container { image: image.into(), ..Default::default() };
            assert_eq!(app(&pod, &container).duration.is_some(), ends, "{image}");
        }
    }

    #[test]
    fn annotations_go_first_and_services_do_not_end() {
        let mut pod = PodView::default();
        let container = Container::default();
        pod.spec.restart_policy = "Never".into();
        assert_eq!(app(&pod, &container), Script { duration: Some(DEFAULT_DURATION), exit_code: 0 });
        pod.spec.restart_policy = "Always".into();
        assert_eq!(app(&pod, &container), Script { duration: None, exit_code: 0 });
        pod.metadata.annotations.insert(DURATION.into(), "1m".into());
        pod.metadata.annotations.insert(EXIT_CODE.into(), "42".into());
        assert_eq!(app(&pod, &container), Script { duration: Some(60 * SECOND), exit_code: 42 });
    }
}
