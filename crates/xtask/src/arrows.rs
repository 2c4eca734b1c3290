//! The arrows between crates: who may depend on whom, and who never on what.

use anyhow::Result;

use crate::process;

/// What a package may not depend on, directly or through others.
struct Rule {
    package: &'static str,
    /// Ours that it may depend on. Every other of ours is forbidden.
    ours: &'static [&'static str],
    /// Others' that it must not depend on.
    never: &'static [&'static str],
}

const RULES: &[Rule] = &[
    Rule { package: "haloflow-geometry", ours: &[], never: &["tokio", "object_store", "tch"] },
    Rule { package: "haloflow-volume", ours: &["haloflow-geometry"], never: &["tch", "clap", "axum"] },
    Rule { package: "haloflow-engine", ours: &["haloflow-geometry"], never: &["tokio", "tch"] },
    Rule {
        package: "haloflow-engine-torch",
        ours: &["haloflow-engine", "haloflow-geometry"],
        never: &["tokio", "object_store"],
    },
    Rule { package: "haloflow-model", ours: &[], never: &["tokio", "object_store", "tch", "clap"] },
    Rule {
        package: "haloflow-pipeline",
        ours: &["haloflow-engine", "haloflow-geometry", "haloflow-volume"],
        never: &["tch", "clap", "axum"],
    },
    Rule {
        package: "haloflow-service",
        ours: &["haloflow-pipeline", "haloflow-engine", "haloflow-geometry", "haloflow-volume"],
        never: &["tch", "clap"],
    },
    Rule { package: "xtask", ours: &[], never: &["tokio", "tch"] },
];

/// The only package that may name libtorch.
const TORCH: &str = "haloflow-engine-torch";

/// Names every arrow that points the wrong way.
pub(crate) fn problems() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for rule in RULES {
        let tree = ["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--package", rule.package];
        found.extend(wrong(rule, &process::read(process::cargo().args(tree))?));
    }
    let users = ["tree", "--workspace", "--invert", "tch", "--depth", "1", "--prefix", "none", "--format", "{p}"];
    found.extend(wrong_users(&process::read(process::cargo().args(users))?));
    Ok(found)
}

fn wrong(rule: &Rule, tree: &str) -> Vec<String> {
    let (package, allowed) = (rule.package, rule.ours);
    let forbidden = |name: &str| {
        let ours = name == "haloflow" || name.starts_with("haloflow-") || name == "xtask";
        name != package && (rule.never.contains(&name) || ours && !allowed.contains(&name))
    };
    names(tree).into_iter().filter(|name| forbidden(name)).map(|name| format!("{package} depends on {name}")).collect()
}

fn wrong_users(tree: &str) -> Vec<String> {
    let users = names(tree).into_iter().filter(|name| !["tch", TORCH].contains(name));
    users.map(|name| format!("{name} depends on tch; only {TORCH} may")).collect()
}

/// The package names in lines such as `tokio v1.2.3 (*)`, each once.
fn names(tree: &str) -> Vec<&str> {
    let mut names: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { package: "haloflow-engine", ours: &["haloflow-geometry"], never: &["tokio", "tch"] };

    #[test]
    fn allowed_arrows_pass() {
        let tree = "haloflow-engine v0.1.0 (/somewhere)\nhaloflow-geometry v0.1.0 (/somewhere)\ntokio-like v1.0.0\n";
        assert_eq!(wrong(&RULE, tree), [""; 0]);
        assert_eq!(wrong_users("tch v0.24.0\nhaloflow-engine-torch v0.1.0 (/somewhere)\n"), [""; 0]);
    }

    #[test]
    fn forbidden_arrows_are_named_once() {
        let tree = "haloflow-engine v0.1.0\ntokio v1.0.0\nhaloflow-volume v0.1.0\ntokio v1.0.0 (*)\n";
        let found = wrong(&RULE, tree);
        assert_eq!(found, ["haloflow-engine depends on haloflow-volume", "haloflow-engine depends on tokio"]);
        assert_eq!(
            wrong_users("tch v0.24.0\nhaloflow v0.1.0\n"),
            ["haloflow depends on tch; only haloflow-engine-torch may"]
        );
    }
}
