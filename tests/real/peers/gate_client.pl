#!/usr/bin/env perl
# Asks servers for a key as fast as they answer, one request at a time on each connection, for some seconds, and writes the time of
# each answer in ms since the epoch to FILE, with the port, and 1 if it was served. A connection that breaks is opened again.
# At a PORT that is a memcached the key is got; at web:PORT it is the path, and what is before its colon the tenant.
# A PORT may be HOST:PORT; HOST is 127.0.0.1.
# usage: gate_client.pl SECONDS FILE KEY CONNECTIONS PORT...
use strict;
use warnings;
use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time sleep);
my ($seconds, $file, $key, $each, @ports) = @ARGV;
open(my $out, '>', $file) or die "$file: $!\n";
$out->autoflush(1);
my $select = IO::Select->new;
my ($tenant) = $key =~ /^([^:]*)/;
my (%port, %got, %closed, %ask, %asked);
for (@ports) {
    my $web = s/^web://;
    $ask{$_} = $web ? "GET /small HTTP/1.1\r\nHost: x\r\nX-Tenant: $tenant\r\n\r\n" : "get $key\r\n";
}
# undef: the answer is not whole yet
sub served {
    my ($text) = @_;
    return $1 eq 'END' ? 1 : 0 if $text =~ /^(END|SERVER_ERROR[^\n]*)\r\n\z/;
    return undef unless $text =~ m{^HTTP/1.1 (\d+).*?Content-Length: (\d+)\r.*?\r\n\r\n(.*)\z}si && length $3 == $2;
    return $1 == 200 ? 1 : 0;
}
sub begin {
    my ($p) = @_;
    my $s = IO::Socket::INET->new(PeerAddr => $p =~ /:/ ? $p : "127.0.0.1:$p", Timeout => 1);
    return $closed{$p}++ unless $s && defined syswrite($s, $ask{$p});
    $port{$s} = $p;
    $got{$s} = '';
    $asked{$s} = time;
    $select->add($s);
}
my $end = time + $seconds;
for my $p (@ports) { begin($p) for 1 .. $each; }
my $again = time + 0.2;
while ((my $now = time) < $end) {
    for my $s ($select->can_read(0.05)) {
        if (!sysread($s, $got{$s}, 4096, length $got{$s})) {
            $select->remove($s);
            $closed{$port{$s}}++;
            close $s;
            next;
        }
        my $served = served($got{$s});
        next unless defined $served;
        printf $out "%.3f %s %d\n", time * 1000, $port{$s}, $served;
        $got{$s} = '';
        $asked{$s} = $now;
        syswrite($s, $ask{$port{$s}});
    }
    next if $now < $again;
    $again = $now + 0.2;
    for my $s ($select->handles) { # of a host that was cut off
        next if $now < ($asked{$s} || 0) + 30;
        $select->remove($s);
        $closed{$port{$s}}++;
        close $s;
    }
    for my $p (@ports) {
        my $lost = $closed{$p} || 0;
        $closed{$p} = 0;
        begin($p) for 1 .. $lost;
    }
}
close $out or die "$file: $!\n";
