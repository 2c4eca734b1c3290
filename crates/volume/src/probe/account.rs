//! Who we are to a store, where it is, and what time it is there.

use std::time::{Duration, SystemTime};

use super::{Finding, broken, ok, warning};
use crate::Environment;
use crate::amazon::{Region, Teller};
use crate::credentials::{Origin, Source};
use crate::gate::Clock;
use crate::location::Location;

/// Above this signatures are refused: Amazon's, and Azure's.
const REFUSED: Duration = Duration::from_secs(15 * 60);

/// Above this a clock is not kept right.
const SKEWED: Duration = Duration::from_secs(60);

/// The store of a place, as a URL without a path.
fn store(place: &Location) -> String {
    let end = place.url.find("://").and_then(|at| place.url[at + 3..].find('/').map(|slash| at + 3 + slash));
    place.url[..end.unwrap_or(place.url.len())].to_owned()
}

/// Where a bucket is taken to be, and who said so.
pub(super) fn region(place: &Location) -> Option<Finding> {
    let Region { name, told_by, endpoint } = place.store.region.as_ref()?;
    let at = endpoint.as_ref().map_or(String::new(), |endpoint| format!(", at {}", without_user(endpoint)));
    let by = match told_by {
        Teller::Spec => "as the spec says",
        Teller::Environment => "as AWS_REGION says",
        Teller::Profile => "as the profile says",
        Teller::Bucket => "as the bucket says, which was asked",
        // Other makers' stores take any.
        Teller::Nobody if endpoint.is_some() => "which nobody told and stores at an address of their own rarely need",
        Teller::Nobody => {
            let found = format!("{name}, a guess: the bucket does not say where it is");
            return Some(warning("region", &store(place), found, "set AWS_REGION, or mend the bucket's name"));
        }
    };
    Some(ok("region", &store(place), format!("{name}, {by}{at}")))
}

/// An address without the user and password that somebody may have put into it.
fn without_user(endpoint: &str) -> String {
    match endpoint.split_once("://").map(|(scheme, rest)| (scheme, rest.rsplit_once('@'))) {
        Some((scheme, Some((_, host)))) => format!("{scheme}://{host}"),
        _ => endpoint.to_owned(),
    }
}

/// Where the credentials come from, and whether they will last. Nothing for stores whose client keeps that to itself.
pub(super) async fn credentials(place: &Location, environment: &Environment) -> Option<Finding> {
    let subject = store(place);
    let Some(credentials) = &place.store.credentials else {
        let unsigned = place.store.region.is_some() || environment.network().anonymous && place.store.gate.is_some();
        return unsigned.then(|| ok("credentials", &subject, "none: requests go unsigned"));
    };
    let told = environment.variable("AWS_CREDENTIAL_EXPIRATION").and_then(expiration);
    Some(match credentials.origin().await {
        Err(none) => broken("credentials", &subject, none.to_string(), "set them, or use --anonymous"),
        Ok(origin) if origin.source == Source::Environment => {
            lasting(&subject, &Origin { expires: origin.expires.or(told), ..origin }, SystemTime::now())
        }
        Ok(origin) => lasting(&subject, &origin, SystemTime::now()),
    })
}

/// A time such as `2026-01-31T12:00:00Z`.
fn expiration(text: &str) -> Option<SystemTime> {
    text.parse::<reqsign_core::time::Timestamp>().ok().map(reqsign_core::time::Timestamp::as_system_time)
}

/// Whether credentials will last for a run of hours.
fn lasting(subject: &str, origin: &Origin, now: SystemTime) -> Finding {
    let (source, renew) = (origin.source.name(), "use a source that renews them, such as single sign-on or a role");
    let left = origin.expires.map(|expires| expires.duration_since(now).unwrap_or_default());
    match (left, origin.source.renews()) {
        (Some(Duration::ZERO), _) => {
            broken("credentials", subject, format!("from {source}; they have expired"), "get new ones")
        }
        (Some(left), true) => {
            ok("credentials", subject, format!("from {source}; they expire in {} and are renewed before", span(left)))
        }
        (Some(left), false) => {
            let found = format!("from {source}; they expire in {} and are not renewed", span(left));
            warning("credentials", subject, found, renew)
        }
        (None, true) => ok("credentials", subject, format!("from {source}, which renews them")),
        (None, false) if origin.temporary => {
            let found =
                format!("from {source}, with a session token: they expire, nobody says when, and are not renewed");
            warning("credentials", subject, found, renew)
        }
        (None, false) => ok("credentials", subject, format!("from {source}; they do not expire")),
    }
}

/// How far our clock is from the store's; nothing if it did not say.
pub(super) fn clock(place: &Location) -> Option<Finding> {
    Some(skew(&store(place), place.store.gate.as_ref()?.clock()?))
}

fn skew(subject: &str, clock: Clock) -> Finding {
    let ahead = clock.ours.duration_since(clock.store);
    let apart = ahead.clone().unwrap_or_else(|behind| behind.duration());
    let way = if ahead.is_ok() { "ahead of" } else { "behind" };
    let found = format!("this machine's clock is {} {way} the store's", span(apart));
    let fix = "set this machine's clock, by NTP for example";
    match apart {
        _ if apart > REFUSED => {
            broken("clock", subject, format!("{found}, which refuses signatures beyond 15 min"), fix)
        }
        _ if apart > SKEWED => warning("clock", subject, found, fix),
        // The header tells whole seconds, and an answer takes its time.
        _ => ok("clock", subject, format!("within {} of the store's", span(apart.max(Duration::from_secs(2))))),
    }
}

/// `75 s`, `42 min`, `7.5 h`, `12 days`.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{:.1} h", seconds as f64 / 3600.0),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VolumeErrorKind;
    use crate::probe::Verdict;

    const FAILED: Verdict = Verdict::Failed(VolumeErrorKind::Unavailable);

    #[test]
    fn a_clock_is_warned_of_above_a_minute_and_fails_above_fifteen() {
        let store = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 31);
        let of = |seconds: u64| {
            let apart = Duration::from_secs(seconds);
            [store + apart, store - apart].map(|ours| skew("s3://b", Clock { store, ours }))
        };
        for (seconds, verdict) in
            [(0, Verdict::Ok), (60, Verdict::Ok), (61, Verdict::Warning), (900, Verdict::Warning), (901, FAILED)]
        {
            assert_eq!(of(seconds).map(|finding| finding.verdict), [verdict; 2], "{seconds}");
        }
        let [ahead, behind] = of(100).map(|finding| finding.found);
        assert_eq!(ahead, "this machine's clock is 100 s ahead of the store's");
        assert_eq!(behind, "this machine's clock is 100 s behind the store's");
    }

    #[test]
    fn credentials_that_end_and_are_not_renewed_are_warned_of() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 31);
        let of = |source, temporary, seconds: Option<i64>| {
            let expires = seconds.map(|seconds| match u64::try_from(seconds) {
                Ok(seconds) => now + Duration::from_secs(seconds),
                Err(_) => now - Duration::from_secs(seconds.unsigned_abs()),
            });
            let finding = lasting("s3://b", &Origin { source, temporary, expires }, now);
            assert_eq!(finding.fix.is_some(), finding.verdict != Verdict::Ok);
            (finding.verdict, finding.found)
        };
        assert_eq!(of(Source::Environment, false, None).0, Verdict::Ok);
        assert_eq!(of(Source::Environment, true, None).0, Verdict::Warning);
        assert_eq!(of(Source::Environment, true, Some(-1)).0, FAILED);
        let (verdict, found) = of(Source::Profile, true, Some(2700));
        assert_eq!((verdict, found.contains("expire in 45 min and are not renewed")), (Verdict::Warning, true));
        let (verdict, found) = of(Source::Instance, true, Some(6 * 3600));
        assert_eq!((verdict, found.contains("expire in 6.0 h and are renewed before")), (Verdict::Ok, true));
    }

    #[test]
    fn an_address_is_told_without_its_password() {
        assert_eq!(without_user("http://me:hunter2@host:9000/x"), "http://host:9000/x");
        assert_eq!(without_user("http://host:9000"), "http://host:9000");
    }
}
