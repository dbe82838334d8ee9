SELECT auction, bidder, 0.908 * price AS price, date_time AS event_time, extra
FROM bids
