-- A replica looks for deliveries of replicas that are gone, owner by owner.
CREATE INDEX delivery_by_owner ON delivery (owner);
