//! How often one address may ask: a bucket of tokens each.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
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
        let (most, address) = ((self.per_second * SAVED).max(1.0), client(address));
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST_ADDRESSES && !buckets.contains_key(&address) {
            buckets.retain(|_, bucket| self.filled(bucket, now) < most);
            // None is full: the others wait rather than fill the memory.
            if buckets.len() >= MOST_ADDRESSES {
                return false;
            }
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

/// What stands for a client: a client of IPv6 has as many addresses as it likes, all in one network of 64 bits.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
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

    #[test]
    fn a_client_does_not_get_more_by_asking_from_many_addresses() {
        let (rates, now) = (Rates::new(10.0), Instant::now());
        let admitted = |address: String| rates.admit(address.parse().unwrap(), now);
        assert_eq!((0..100).filter(|i| admitted(format!("2001:db8:0:1::{i:x}"))).count(), 20);
        assert!(admitted("2001:db8:0:2::1".into()));
        assert_eq!((0..100).filter(|i| admitted(["10.0.0.1", "::ffff:10.0.0.1"][i % 2].into())).count(), 20);
        // However many ask, no more are remembered than there is room for.
        let from = |i: usize| IpAddr::from([11, (i >> 16) as u8, (i >> 8) as u8, i as u8]);
        assert!((0..2 * MOST_ADDRESSES).filter(|i| rates.admit(from(*i), now)).count() < MOST_ADDRESSES);
        assert_eq!(rates.buckets.lock().unwrap().len(), MOST_ADDRESSES);
        assert!(rates.admit(from(3 * MOST_ADDRESSES), now + Duration::from_secs(10)));
    }
}
