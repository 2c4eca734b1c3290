//! Credentials that a service gives for a while.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use haloflow_volume::{Environment, Network, VolumeErrorKind};
use tokio::net::TcpStream;

use crate::played::{Played, answer};
use crate::support::open;

/// A moment so many seconds from now, as services write it.
fn moment(seconds: u32) -> String {
    let date = Command::new("date").args(["-u", "-d", &format!("+{seconds} seconds"), "+%Y-%m-%dT%H:%M:%SZ"]).output();
    String::from_utf8(date.unwrap().stdout).unwrap().trim().to_owned()
}

/// Which key signs, and how long it is good, when a service is asked for the so-many-th time: the first is about to expire.
fn given(count: usize) -> (String, String) {
    (format!("KEY{count}"), moment(if count == 1 { 60 } else { 3600 }))
}

/// A service of credentials that answers with what `text` makes of key and moment.
async fn service(text: fn(&str, &str) -> String) -> Played {
    let count = Arc::new(AtomicUsize::new(0));
    let part = move |_: String, socket: TcpStream| {
        let (key, moment) = given(count.fetch_add(1, Ordering::Relaxed) + 1);
        async move { answer(socket, "200 OK", "", &text(&key, &moment)).await }
    };
    Played::by(part).await
}

/// The keys that signed what a store was asked while a volume was looked for, in this environment.
async fn keys(variables: Vec<(&str, String)>) -> Vec<String> {
    let store = Played::by(async |_, socket| answer(socket, "404 Not Found", "", "").await).await;
    let own = [("AWS_ENDPOINT_URL", store.endpoint.clone()), ("AWS_REGION", "us-west-2".to_owned())];
    let all = own.into_iter().chain(variables).map(|(name, value)| (name.to_owned(), value));
    let environment = Environment::with_network(all.collect::<Vec<_>>(), Network::default());
    let error = open("s3://bucket/x", &environment).await.unwrap_err();
    assert_eq!(error.kind, VolumeErrorKind::Data, "{error}");
    let key = |head: &String| head.split("Credential=").nth(1).unwrap().split('/').next().unwrap().to_owned();
    let mut keys: Vec<String> = store.heads().iter().map(key).collect();
    keys.sort();
    keys
}

#[tokio::test]
async fn a_container_is_asked_again_before_its_credentials_expire() {
    let container = service(|key, moment| {
        format!(r#"{{"AccessKeyId": "{key}", "SecretAccessKey": "s", "Token": "t", "Expiration": "{moment}"}}"#)
    });
    let container = container.await;
    let url = format!("{}/creds", container.endpoint);
    let keys = keys(vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)]).await;
    assert_eq!(keys, ["KEY1", "KEY2", "KEY2", "KEY2"]);
    assert_eq!(container.heads().len(), 2);
}

#[tokio::test]
async fn a_web_identity_is_turned_into_credentials_again_before_they_expire() {
    let tokens = service(|key, moment| {
        format!(
            "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{key}</AccessKeyId>\
             <SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>{moment}</Expiration></Credentials>\
             </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        )
    });
    let tokens = tokens.await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "a.web.token").unwrap();
    let keys = keys(vec![
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.to_str().unwrap().to_owned()),
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader".to_owned()),
        ("AWS_ENDPOINT_URL_STS", tokens.endpoint.clone()),
    ]);
    assert_eq!(keys.await, ["KEY1", "KEY2", "KEY2", "KEY2"]);
    assert_eq!(tokens.heads().len(), 2);
    assert!(tokens.heads().iter().all(|head| head.starts_with("POST / ")), "{:?}", tokens.heads());
}

#[tokio::test]
async fn a_profile_that_takes_on_a_role_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    for key in ["role_arn", "source_profile", "credential_source", "web_identity_token_file"] {
        std::fs::write(&file, format!("[profile lab]\naws_access_key_id = k\naws_secret_access_key = s\n{key} = x\n"))
            .unwrap();
        let variables =
            [("AWS_PROFILE", "lab"), ("AWS_CONFIG_FILE", file.to_str().unwrap()), ("AWS_REGION", "us-west-2")];
        let of = |more: Option<(&str, &str)>, network| {
            let all = variables.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value.to_owned()));
            Environment::with_network(all.collect::<Vec<_>>(), network)
        };
        let error = open("s3://bucket/x", &of(None, Network::default())).await.unwrap_err();
        assert_eq!(error.kind, VolumeErrorKind::Usage, "{error}");
        assert!(error.message.contains(&format!("profile lab takes on a role ({key})")), "{error}");
        // Nobody is asked for credentials then.
        let store = Played::by(async |_, socket| answer(socket, "404 Not Found", "", "").await).await;
        let anonymous = Network { anonymous: true, ..Network::default() };
        let error =
            open("s3://bucket/x", &of(Some(("AWS_ENDPOINT_URL", &store.endpoint)), anonymous)).await.unwrap_err();
        assert_eq!(error.kind, VolumeErrorKind::Data, "{error}");
    }
}
