//! How often one address may ask: a bucket of tokens each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Addresses that are remembered; beyond it those whose buckets are full are forgotten.
const MOST_ADDRESSES: usize = 10_000;

/// Seconds for which an address may save up.
const SAVED: f64 = 2.0;

/// The buckets.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: f64,
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Rates {
    /// Buckets of `per_second` requests; any number if it is 0.
    pub(crate) fn new(per_second: f64) -> Self {
        Self { per_second, buckets: Mutex::default() }
    }

    /// Whether `address` may ask now.
    pub(crate) fn admit(&self, address: IpAddr, now: Instant) -> bool {
        if self.per_second == 0.0 {
            return true;
        }
        let most = (self.per_second * SAVED).max(1.0);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST_ADDRESSES && !buckets.contains_key(&address) {
            buckets.retain(|_, bucket| self.filled(bucket, now) < most);
        }
        let bucket = buckets.entry(address).or_insert(Bucket { tokens: most, at: now });
        *bucket = Bucket { tokens: self.filled(bucket, now).min(most), at: now };
        let admitted = bucket.tokens >= 1.0;
        if admitted {
            bucket.tokens -= 1.0;
        }
        admitted
    }

    fn filled(&self, bucket: &Bucket, now: Instant) -> f64 {
        bucket.tokens + now.saturating_duration_since(bucket.at).as_secs_f64() * self.per_second
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_may_ask_so_often_and_others_do_not_pay_for_it() {
        let (rates, now) = (Rates::new(10.0), Instant::now());
        let [one, other] = ["10.0.0.1", "10.0.0.2"].map(|address| address.parse().unwrap());
        let asked = |address, at| (0..100).filter(|_| rates.admit(address, at)).count();
        assert_eq!(asked(one, now), 20);
        assert_eq!(asked(other, now), 20);
        assert_eq!(asked(one, now + Duration::from_millis(500)), 5);
        assert_eq!(asked(one, now + Duration::from_secs(100)), 20);
        assert!((0..1000).all(|_| Rates::new(0.0).admit(one, now)));
    }
}
