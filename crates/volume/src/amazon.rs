//! S3: a bucket's client, with settings from variables, profile files and specs, and the region that the bucket is in.

use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

use crate::client::PatientClient;
use crate::credentials::Credentials;
use crate::gate::Gate;
use crate::profile::Profile;
use crate::store::{Store, once};
use crate::{Environment, VolumeError};

/// Where buckets are whose region nobody knows.
const DEFAULT_REGION: &str = "us-east-1";

/// Settings of an S3 store that do not come from the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AmazonSettings {
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) anonymous: bool,
}

/// Where a bucket is taken to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) name: String,
    pub(crate) told_by: Teller,
    /// The address that requests go to, if it is not Amazon's own.
    pub(crate) endpoint: Option<String>,
}

/// Who said where a bucket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teller {
    Spec,
    /// `AWS_REGION` or `AWS_DEFAULT_REGION`.
    Environment,
    Profile,
    /// The bucket, which was asked.
    Bucket,
    /// Nobody: it is a guess.
    Nobody,
}

/// The store of a bucket.
pub(crate) async fn amazon(
    bucket: &str,
    settings: &AmazonSettings,
    environment: &Environment,
) -> Result<Store, VolumeError> {
    let (adaptive, attempts) = retry_mode(environment)?;
    let profile = Profile::read(environment).await?;
    let gate = Arc::new(Gate::new(format!("s3://{bucket}"), environment.network(), adaptive, attempts));
    let unusable = |error: object_store::Error| {
        VolumeError::usage(format!("cannot set up a client for s3://{bucket}: {error}")).with_source(error)
    };
    let client = PatientClient::new(Arc::clone(&gate))?;
    let mut builder = AmazonS3Builder::new().with_retry(once()).with_http_connector(client.clone());
    for (name, value) in environment.with_prefix("AWS_") {
        if let Ok(key) = name.to_ascii_lowercase().parse::<AmazonS3ConfigKey>() {
            builder = builder.with_config(key, value);
        }
    }
    let set = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    let endpoint = settings.endpoint.clone();
    let endpoint = endpoint.or_else(|| set(&builder, AmazonS3ConfigKey::S3Endpoint));
    let endpoint = endpoint.or_else(|| set(&builder, AmazonS3ConfigKey::Endpoint)).or_else(|| profile.endpoint.clone());
    if let Some(endpoint) = &endpoint {
        builder = builder
            .with_config(AmazonS3ConfigKey::S3Endpoint, endpoint)
            .with_endpoint(endpoint)
            .with_allow_http(endpoint.starts_with("http://"));
    }
    let told = |region: Option<String>, told_by| region.map(|name| (name, told_by));
    let told = told(settings.region.clone(), Teller::Spec)
        .or_else(|| told(set(&builder, AmazonS3ConfigKey::Region), Teller::Environment))
        .or_else(|| told(profile.region.clone(), Teller::Profile));
    let (name, told_by) = match told {
        Some(told) => told,
        None => ask_region(&client, bucket, endpoint.as_deref()).await,
    };
    builder = builder.with_region(&name).with_bucket_name(bucket);
    let region = Some(Region { name, told_by, endpoint });
    let unsigned = set(&builder, AmazonS3ConfigKey::SkipSignature).is_some_and(|value| value == "true");
    let mut credentials = None;
    if unsigned || settings.anonymous || environment.network().anonymous {
        builder = builder.with_skip_signature(true);
    } else {
        profile.check_role(environment)?;
        let chain = Arc::new(Credentials::new(environment));
        builder = builder.with_credentials(Arc::clone(&chain) as _);
        credentials = Some(chain);
    }
    let objects = Arc::new(builder.build().map_err(unusable)?);
    Ok(Store { objects, gate: Some(gate), credentials, region })
}

/// The region that the bucket says it is in; a guess if it does not say.
async fn ask_region(client: &PatientClient, bucket: &str, endpoint: Option<&str>) -> (String, Teller) {
    let url = match endpoint {
        Some(endpoint) => format!("{}/{bucket}", endpoint.trim_end_matches('/')),
        // The certificate of the other form covers no dots.
        None if bucket.contains('.') => format!("https://s3.amazonaws.com/{bucket}"),
        None => format!("https://{bucket}.s3.amazonaws.com"),
    };
    match client.header_of(&url, "x-amz-bucket-region").await {
        Some(region) => {
            tracing::info!("the bucket {bucket} is in the region {region}");
            (region, Teller::Bucket)
        }
        None => {
            tracing::debug!("the bucket {bucket} does not tell its region: {DEFAULT_REGION} is used");
            (DEFAULT_REGION.to_owned(), Teller::Nobody)
        }
    }
}

/// Whether throttling lowers the number of requests in flight, and the most attempts, as `AWS_RETRY_MODE` and
/// `AWS_MAX_ATTEMPTS` have it.
fn retry_mode(environment: &Environment) -> Result<(bool, Option<usize>), VolumeError> {
    let adaptive = match environment.variable("AWS_RETRY_MODE") {
        None | Some("" | "adaptive") => true,
        Some("standard" | "legacy") => false,
        Some(other) => {
            return Err(VolumeError::usage(format!(
                "AWS_RETRY_MODE is {other}: it must be adaptive, standard or legacy"
            )));
        }
    };
    let attempts = environment.variable("AWS_MAX_ATTEMPTS").filter(|text| !text.is_empty());
    let attempts = attempts.map(|text| {
        text.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
            VolumeError::usage(format!("AWS_MAX_ATTEMPTS is {text}: it must be a whole number of at least 1"))
        })
    });
    Ok((adaptive, attempts.transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_retry_mode_follows_the_variables() {
        let of = |mode: &str, attempts: &str| {
            let variables = [("AWS_RETRY_MODE", mode), ("AWS_MAX_ATTEMPTS", attempts)];
            retry_mode(&Environment::new(variables.map(|(name, value)| (name.to_owned(), value.to_owned()))))
        };
        assert_eq!(of("", "").unwrap(), (true, None));
        assert_eq!(of("adaptive", "3").unwrap(), (true, Some(3)));
        assert_eq!(of("standard", "").unwrap(), (false, None));
        assert!(of("eager", "").unwrap_err().message.contains("adaptive, standard or legacy"));
        assert!(of("", "0").unwrap_err().message.contains("AWS_MAX_ATTEMPTS is 0"));
    }
}
