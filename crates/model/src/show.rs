//! A model as text and as JSON, for `haloflow model inspect`.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::model::Model;
use crate::package::Package;

impl Model {
    /// What is known, as lines for a person. `fits` tells whether a package serves here: nothing, or why not.
    #[must_use]
    pub fn text(&self, fits: &dyn Fn(&Package) -> Option<String>) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = self.write(&mut text, fits);
        text
    }

    fn write(&self, text: &mut String, fits: &dyn Fn(&Package) -> Option<String>) -> std::fmt::Result {
        let facts = &self.facts;
        let count =
            |channels: Option<usize>| channels.map_or("any number of".to_owned(), |channels| channels.to_string());
        let size = |[z, y, x]: [usize; 3]| format!("{z} x {y} x {x}");
        let line = |text: &mut String, name: &str, value: &str| match value {
            "" => Ok(()),
            value => writeln!(text, "{name:<14}{value}"),
        };
        line(text, "model", &format!("{} ({})", facts.name, self.form.name()))?;
        line(text, "description", &facts.description)?;
        line(text, "source", &facts.source)?;
        line(text, "input", &format!("{} channels  {}", count(facts.channels_in), facts.input_names.join(", ")))?;
        line(text, "output", &format!("{} channels  {}", count(facts.channels_out), facts.output_names.join(", ")))?;
        line(text, "meaning", &word(&facts.output))?;
        line(text, "kind", &facts.kind.to_string())?;
        line(text, "patch", &facts.patch.map(size).unwrap_or_default())?;
        line(text, "divisible by", &size(facts.divisible_by))?;
        line(text, "align", &facts.align.map(size).unwrap_or_default())?;
        line(text, "depends on", &facts.receptive_field.map(size).unwrap_or_default())?;
        line(text, "normalisation", &self.normalisation())?;
        for (name, sum) in &facts.files {
            line(text, "file", &format!("{name}  sha256 {sum}"))?;
        }
        for package in &self.packages {
            let verdict = fits(package).unwrap_or_else(|| "runs here".to_owned());
            line(text, "compiled", &format!("{}  {}: {verdict}", name(&package.path), made_for(package)))?;
        }
        for (key, value) in &facts.export {
            line(text, "export", &format!("{key} = {value}"))?;
        }
        Ok(())
    }

    fn normalisation(&self) -> String {
        let Some(facts) = &self.facts.normalisation else { return String::new() };
        let bounds = facts.lower.zip(facts.upper).map(|(lower, upper)| format!(" {lower} {upper}"));
        let clip = facts.clip.and_then(|clip| clip.bounds()).map(|[low, high]| format!(", clipped to {low} {high}"));
        format!("{}{}{}", facts.how, bounds.unwrap_or_default(), clip.unwrap_or_default())
    }

    /// The same as JSON.
    #[must_use]
    pub fn json(&self, fits: &dyn Fn(&Package) -> Option<String>) -> Value {
        let packages = self
            .packages
            .iter()
            .map(|package| json!({ "path": package.path, "facts": package.facts, "refused": fits(package) }));
        json!({
            "path": self.path,
            "form": self.form.name(),
            "facts": self.facts,
            "module": self.module,
            "program": self.program,
            "packages": packages.collect::<Vec<_>>(),
        })
    }
}

fn word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn made_for(package: &Package) -> String {
    let facts = &package.facts;
    let batch = if facts.dynamic { "any batch".to_owned() } else { format!("batch {}", facts.batch) };
    let [z, y, x] = facts.patch;
    format!(
        "for libtorch {}, {} {}, {batch}, patch {z} x {y} x {x}, {}, mode {}",
        facts.libtorch, facts.device, facts.architecture, facts.kind, facts.mode
    )
}
