// Symbol visibility: everything is hidden unless it carries TOPOCOLL_API.
#pragma once

#define TOPOCOLL_API [[gnu::visibility("default")]]
