SELECT auction, bidder, price, date_time AS event_time, extra, strftime(date_time, '%Y-%m-%d') AS dt, strftime(date_time, '%H:%M') AS hm
FROM bids
